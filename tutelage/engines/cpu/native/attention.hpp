// The rotation of queries and keys, and the attention of answers to their prompt and to themselves, in one softmax.
#pragma once

#include "pairs.hpp"
#include "products.hpp"

namespace {

constexpr long SOON = 8;  // tokens: the distance at which the keys of an answer are prefetched

// Numbers of a token's key or value in bfloat16, which are padded with zeros.
INLINE long padded_width(const Model &model) { return round_up(model.width, LANES); }

struct Angles {
    const float *cosine, *sine;  // [n][w]
};

// Normalises the heads where the layer has norms of heads, and rotates queries and keys [H + K][w] of one line, in
// place.
void rotate(const Model &model, const Layer &layer, const float *cosine, const float *sine, float *heads) {
    const long width = model.width, half = width / 2;
    for (long head = 0; head < model.heads + model.keys; head++) {
        float *x = heads + head * width;
        const bool query = head < model.heads;
        if (const float *weight = query ? layer.query_norm : layer.key_norm) {
            const float r = root_mean_square(x, width, query ? layer.query_epsilon : layer.key_epsilon);
            normalise(x, width, weight, r);
        }
        for (long i = 0; i < half; i += LANES) {
            const long count = std::min(LANES, half - i);
            const Rotated y(load_some(x + i, count), load_some(x + half + i, count), load_some(cosine + i, count),
                            load_some(sine + i, count));
            put(x + i, count, result(layer.heads, y.first));
            put(x + half + i, count, result(layer.heads, y.second));
        }
    }
}

// Stores the key and the value [w] of one head for the last token of the slot at `place`.
void store_token(const Model &model, const Layer &layer, const Lines &lines, long place, const float *key,
                 const float *value) {
    const long token = lines.written - 1, width = padded_width(model);
    if (!layer.heads.half) {
        std::copy_n(key, model.width, layer.keys + place + token * lines.answers[3]);
        std::copy_n(value, model.width, layer.values + place + token * lines.answers[3]);
        return;
    }
    const long block = place + token / LANES * LANES * width, of_block = token % LANES;
    Half *keys = reinterpret_cast<Half *>(layer.keys) + block + 2 * of_block;
    Half *values = reinterpret_cast<Half *>(layer.values) + block + of_block / 2 * 2 * width + of_block % 2;
    for (long i = 0; i < model.width; i += LANES) {
        const long count = std::min(LANES, model.width - i);
        alignas(64) Half of_key[LANES], of_value[LANES];
        store(of_key, load_some(key + i, count)), store(of_value, load_some(value + i, count));
        for (long j = 0; j < count; j += 2) std::memcpy(keys + (i + j) * LANES, of_key + j, sizeof(Pair));
        for (long j = 0; j < count; j++) values[2 * (i + j)] = of_value[j];
    }
}

// Rotates queries and keys, and stores keys and values in the key/value cache.
void rotate_and_store(Worker &worker, const Model &model, const Layer &layer, const Lines &lines, const Angles &angles,
            float *heads, const Records &records) {
    const long width = model.width, row = (model.heads + 2 * model.keys) * width;
    const int64_t *step = lines.answers;
    worker.share(lines.count, 2 * worker.threads, [&](long first, long end) {
        long prompt = 0;
        for (long line = first; line < end; line++) {
            while (lines.first[prompt + 1] <= line) prompt++;
            float *x = heads + line * row;
            rotate(model, layer, angles.cosine + line * width, angles.sine + line * width, x);
            const float *key = x + model.heads * width, *value = key + model.keys * width;
            records.query.put(line, x), records.key.put(line, key), records.value.put(line, value);
            const long slot = prompt * step[0] + lines.slots[line] * step[2];
            for (long k = 0; k < model.keys; k++)
                store_token(model, layer, lines, slot + k * step[1], key + k * width, value + k * width);
        }
    });
}

INLINE float dot(const float *x, const float *y, long size) {
    Floats products{};
    long i = 0;
    for (; i + LANES <= size; i += LANES) products += load(x + i) * load(y + i);
    float rest = 0;
    for (; i < size; i++) rest += x[i] * y[i];
    return sum(products) + rest;
}

// Sum and maximum of 16 columns of scores.
struct SoftmaxSums {
    Floats sums, most;
};

// The numerators exp(score - maximum) of the softmax down each of 16 columns of scores [length][16], in place.
SoftmaxSums softmax(float *scores, long length) {
    Floats most = load(scores), sums{};
    for (long i = 1; i < length; i++) most = larger(load(scores + i * LANES), most);
    for (long i = 0; i < length; i++) {
        const Floats numerator = exponential(load(scores + i * LANES) - most);
        store(scores + i * LANES, numerator), sums += numerator;
    }
    return {sums, most};
}

// Floats of one thread's workspace: queries [w][16], scores [Q + T][16], values [max(Q, T)][16]; or what a `HalfBlock`
// takes.
INLINE long attention_workspace(const Model &model, const Lines &lines) {
    const long tokens = round_up(lines.longest, LANES) + round_up(lines.written, LANES);
    return 2 * (padded_width(model) + tokens) * LANES;
}

// Up to 16 queries of one prompt and one head of keys: those of the heads that share the keys, line after line.
struct Block {
    const Model &model;
    const Layer &layer;
    const Lines &lines;
    const Records &records;
    long prompt, key, start, queries;  // `start` counts the queries of the key before this block
    float *workspace;

    long shared() const { return model.heads / model.keys; }
    long line(long query) const { return lines.first[prompt] + (start + query) / shared(); }
    long head(long query) const { return key * shared() + (start + query) % shared(); }
    long end(long query) const {  // the query after the last one of the same line
        return std::min(queries, query + shared() - (start + query) % shared());
    }
    long answer(long query) const {
        const int64_t *step = lines.answers;
        return prompt * step[0] + key * step[1] + lines.slots[line(query)] * step[2];
    }

    // Attention of the block: heads [n][H + 2K][w] → [n][H w], normalised.
    void attend(const float *heads, float *into) const {
        const long length = lines.lengths[prompt];
        float *query_block = workspace, *scores = query_block + model.width * LANES;
        const SoftmaxSums found = score(heads, query_block, scores, length);
        alignas(64) float inverse[LANES];
        store(inverse, 1.0f / found.sums);
        put_lse(found);
        float *spare = scores + (length + lines.written) * LANES;
        for (long column = 0; column < model.width; column += LANES)
            mix(scores, length, inverse, column, spare, into);
    }

    // Records the log-sum-exp of the scores of all queries.
    void put_lse(const SoftmaxSums &found) const {
        alignas(64) float sums[LANES], most[LANES];
        store(sums, found.sums), store(most, found.most);
        for (long q = 0; q < queries; q++)
            if (records.lse.keeps(line(q))) records.lse.of<float>(line(q))[head(q)] = most[q] + std::log(sums[q]);
    }

    SoftmaxSums score(const float *heads, float *query_block, float *scores, long length) const {
        const long width = model.width, row = (model.heads + 2 * model.keys) * width;
        std::fill_n(query_block, width * LANES, 0.0f);
        for (long q = 0; q < queries; q++) {
            const float *query = heads + line(q) * row + head(q) * width;
            for (long i = 0; i < width; i++) query_block[i * LANES + q] = query[i] * layer.scale;
        }
        const int64_t *step = lines.prompt_keys;
        const float *keys = layer.prompt_keys + prompt * step[0] + key * step[1];
        for (long i = 0; i < length; i += LANES) {
            prefetch(keys + i, i);
            set_product(std::min(LANES, length - i), keys + i, step[2], query_block, LANES, width, scores + i * LANES);
        }
        float *own = scores + length * LANES;
        std::fill_n(own, lines.written * LANES, 0.0f);
        for (long q = 0; q < queries; q = end(q)) {
            const float *past = layer.keys + answer(q), *values = layer.values + answer(q);
            const float *next = end(q) < queries ? layer.keys + answer(end(q)) : past;
            for (long t = 0; t < lines.written; t++) {
                const long later = t + SOON < lines.written ? t + SOON : t + SOON - lines.written;
                prefetch_row((t + SOON < lines.written ? past : next) + later * lines.answers[3]);
                prefetch_row(values + t * lines.answers[3]);
                for (long lane = q; lane < end(q); lane++)
                    own[t * LANES + lane] = layer.scale * dot(heads + line(q) * row + head(lane) * width,
                                                              past + t * lines.answers[3], width);
            }
        }
        return softmax(scores, length + lines.written);
    }

    // Prefetches the keys of the next block and the values of this one: their rows are too far apart for the hardware.
    void prefetch(const float *keys, long position) const {
        const int64_t *step = lines.prompt_values;
        const float *values = layer.prompt_values + prompt * step[0] + key * step[1] + position * step[2];
        for (long i = 0; i < model.width; i++) __builtin_prefetch(keys + 2 * LANES + i * lines.prompt_keys[2], 0, 2);
        for (long row = 0; row < LANES; row++) prefetch_row(values + row * step[2]);
    }

    void prefetch_row(const float *row) const {
        for (long i = 0; i < model.width; i += LANES) __builtin_prefetch(row + i, 0, 2);
    }

    void mix(const float *probabilities, long length, const float *inverse, long column, float *spare,
             float *into) const {
        const long columns = std::min(LANES, model.width - column);
        const int64_t *step = lines.prompt_values;
        alignas(64) float tile[LANES * LANES];
        long row = step[2];
        const float *values = layer.prompt_values + prompt * step[0] + key * step[1] + column;
        if (columns < LANES) values = padded(values, row, length, columns, spare);
        set_product(queries, probabilities, LANES, values, row, length, tile);
        for (long q = 0; q < queries; q = end(q)) {
            row = lines.answers[3], values = layer.values + answer(q) + column;
            if (columns < LANES) values = padded(values, row, lines.written, columns, spare);
            add_product(end(q) - q, probabilities + length * LANES + q, LANES, values, row, lines.written,
                        tile + q * LANES);
        }
        for (long q = 0; q < queries; q++) {
            const long at = head(q) * model.width + column;
            const Floats y = load(tile + q * LANES) * inverse[q];
            put(into + line(q) * model.heads * model.width + at, columns, y);
            records.attended.put(line(q), at, columns, y);
        }
    }

    // Rows of fewer than 16 numbers, padded: reading 16 might read beyond the allocated memory.
    static const float *padded(const float *from, long &row, long length, long columns, float *into) {
        for (long i = 0; i < length; i++) {
            std::fill_n(into + i * LANES, LANES, 0.0f);
            std::copy_n(from + i * row, columns, into + i * LANES);
        }
        row = LANES;
        return into;
    }
};

template <class SomeBlock>
void attention(Worker &worker, const Model &model, const Layer &layer, const Lines &lines, const Records &records,
               const float *heads, float *into, float *workspace) {
    const long shared = model.heads / model.keys, pairs = lines.prompts * model.keys;
    // parts per prompt and key: several where there are few of these
    const long each = pairs < 2 * worker.threads ? 2 * worker.threads : 1;
    worker.share(pairs * each, pairs * each, [&](long part, long) {
        const long pair = part / each, prompt = pair / model.keys, key = pair % model.keys;
        const long queries = (lines.first[prompt + 1] - lines.first[prompt]) * shared, blocks = blocks_of(queries);
        const long first = blocks * (part % each) / each, last = blocks * (part % each + 1) / each;
        for (long block = first; block < last; block++) {
            const long start = queries * block / blocks, end = queries * (block + 1) / blocks;
            const Block plain{model, layer, lines, records, prompt, key, start, end - start, workspace};
            SomeBlock{plain}.attend(heads, into);
        }
    });
}

}  // namespace
