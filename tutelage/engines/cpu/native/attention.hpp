// The rotation of queries and keys, and the attention of answers to their prompt and to themselves, in one softmax.
#pragma once

#include "pairs.hpp"
#include "products.hpp"
#include "score_rows.hpp"
#include "tiles.hpp"

namespace {

// Numbers of a token's key or value, which are padded with zeros.
INLINE long padded_width(const StepModel &model) { return round_up(model.width, LANES); }

struct Angles {
    const float *cosine, *sine;  // [n][w]
};

// Normalises the heads where the layer has norms of heads, and rotates queries and keys [H + K][w] of one line, in
// place.
void rotate(const StepModel &model, const Layer &layer, const float *cosine, const float *sine, float *heads) {
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

// Stores the key and the value [w] of one head for the last token of the slot at `place`, in the layout of `LineAttention`.
template <class T>
void store_token(const StepModel &model, const Layer &layer, const StepLines &lines, long place, const float *key,
                 const float *value) {
    using Number = NumberOf<T>;
    constexpr long EACH_HOLDS = NUMBERS<T>;
    const long token = lines.written - 1, width = padded_width(model), of_block = token % LANES;
    const long block = place + token / LANES * LANES * width;
    Number *keys = reinterpret_cast<Number *>(layer.keys) + block + of_block * EACH_HOLDS;
    Number *values = reinterpret_cast<Number *>(layer.values) + block + of_block / EACH_HOLDS * EACH_HOLDS * width +
                     of_block % EACH_HOLDS;
    for (long i = 0; i < model.width; i += LANES) {
        const long count = std::min(LANES, model.width - i);
        alignas(64) Number of_key[LANES], of_value[LANES];
        store(of_key, load_some(key + i, count)), store(of_value, load_some(value + i, count));
        for (long j = 0; j < count; j += EACH_HOLDS) std::memcpy(keys + (i + j) * LANES, of_key + j, sizeof(T));
        for (long j = 0; j < count; j++) values[EACH_HOLDS * (i + j)] = of_value[j];
    }
}

// Rotates queries and keys of some lines of a batch, and stores keys and values in the key/value cache.
void rotate_and_store(const StepModel &model, const Layer &layer, const StepLines &lines, const Angles &angles,
                      float *heads, const Records &records, long first, long end) {
    const long width = model.width, row = (model.heads + 2 * model.keys) * width;
    const int64_t *step = lines.answers;
    long prompt = 0;
    for (long line = first; line < end; line++) {
        while (lines.first[prompt + 1] <= line) prompt++;
        float *x = heads + line * row;
        rotate(model, layer, angles.cosine + line * width, angles.sine + line * width, x);
        const float *key = x + model.heads * width, *value = key + model.keys * width;
        records.query.put(line, x), records.key.put(line, key), records.value.put(line, value);
        const long slot = prompt * step[0] + lines.slots[line] * step[2];
        const auto store = layer.heads.half ? store_token<Pair> : store_token<float>;
        for (long k = 0; k < model.keys; k++)
            store(model, layer, lines, slot + k * step[1], key + k * width, value + k * width);
    }
}

// Floats of one thread's workspace: queries and output [16][w], scores [16][Q + T].
INLINE long attention_workspace(const StepModel &model, const StepLines &lines) {
    const long tokens = round_up(lines.longest, LANES) + round_up(lines.written, LANES);
    return (2 * padded_width(model) + tokens) * LANES;
}

// Keys and values of a prompt or an answer are blocks of 16 tokens, with w padded to a multiple of 16 (`BlockLayout` in
// prompt_cache.py). What nobody stored is zero. T holds one number, or a pair along what is summed over.
template <class T>
struct CachedKeys {
    const StepModel &model;
    const Layer &layer;
    const StepLines &lines;

    long shared() const { return model.heads / model.keys; }

    // Rows of `from`, at a distance of `row` elements.
    template <class From>
    static MatrixView<T> rows(const From *x, long row) {
        return {reinterpret_cast<const T *>(x), row, 1};
    }
    VectorView<T> keys(const float *all, long place, long ahead = 0) const {
        return {at(all, place), LANES, padded_width(model) / NUMBERS<T> * LANES, ahead};
    }
    VectorView<T> values(const float *all, long place, long ahead = 0) const {
        return {at(all, place), padded_width(model), LANES, ahead};
    }
    static const T *at(const float *all, long place) { return reinterpret_cast<const T *>(all) + place / NUMBERS<T>; }

    // The numerators of a row of scores. In float32 the queries are scaled, in bfloat16 the scores.
    SoftmaxSum softmax(const ScoreRow &row) const {
        if constexpr (NUMBERS<T> == 1) return row.softmax();
        row.scale(layer.scale);
        return row.half_softmax();
    }

    // A query in a row of padded features.
    void put_query(const float *query, float *rows, long q) const {
        const float factor = NUMBERS<T> == 1 ? layer.scale : 1.0f;
        NumberOf<T> *into = reinterpret_cast<NumberOf<T> *>(rows) + q * padded_width(model);
        for (long i = 0; i < model.width; i += LANES)
            store(into + i, factor * load_some(query + i, std::min(LANES, model.width - i)));
    }
};

// Up to 16 queries of one prompt and one head of keys: those of the heads that share the keys, line after line. Bit for
// bit the attention of packed_attention.hpp (T = float) or of half_attention.hpp (T = Pair), where the prompt is the shared
// prefix and the answer a suffix.
//
//     S = Q K^T      Q [16][w], K [w][16 tokens] in blocks
//     O = P V        P [16][tokens], V [tokens][w]
template <class T>
struct LineAttention : CachedKeys<T> {
    using CachedKeys<T>::model, CachedKeys<T>::layer, CachedKeys<T>::lines, CachedKeys<T>::shared, CachedKeys<T>::rows,
        CachedKeys<T>::keys, CachedKeys<T>::values;
    const Records &records;
    long prompt, key, start, queries;  // `start` counts the queries of the key before these
    float *workspace;

    long line(long query) const { return lines.first[prompt] + (start + query) / shared(); }
    long head(long query) const { return key * shared() + (start + query) % shared(); }
    long end(long query) const {  // the query after the last one of the same line
        return std::min(queries, query + shared() - (start + query) % shared());
    }
    long answer(long query) const {
        const int64_t *step = lines.answers;
        return prompt * step[0] + key * step[1] + lines.slots[line(query)] * step[2];
    }
    long of_prompt() const { return prompt * lines.prompt_steps[0] + key * lines.prompt_steps[1]; }

    // heads [n][H + 2K][w] → [n][H w], normalised.
    void attend(const float *heads, float *into) const {
        constexpr long EACH_HOLDS = NUMBERS<T>;
        const long width = padded_width(model), depth = width / EACH_HOLDS, length = lines.lengths[prompt];
        const long columns = round_up(length, LANES), row = columns + round_up(lines.written, LANES);
        const long step = (model.heads + 2 * model.keys) * model.width;
        T *rounded = reinterpret_cast<T *>(workspace);
        float *output = workspace + LANES * width, *scores = output + LANES * width;
        for (long q = 0; q < queries; q++)
            this->put_query(heads + line(q) * step + head(q) * model.width, workspace, q);
        const long next_keys = WIDE * LANES * depth, next_answer = lines.answers[2] / EACH_HOLDS;
        multiply(queries, columns, depth, rows(rounded, depth), keys(layer.prompt_keys, of_prompt(), next_keys), scores,
                 row, false);
        for (long q = 0; q < queries; q = end(q))
            multiply(end(q) - q, row - columns, depth, rows(rounded + q * depth, depth),
                     keys(layer.keys, answer(q), next_answer), scores + q * row + columns, row, false);
        alignas(64) float inverse[LANES];
        for (long q = 0; q < queries; q++) {
            const SoftmaxSum found = this->softmax({scores + q * row, length, columns, lines.written, row - columns});
            inverse[q] = 1.0f / found.sum;
            if (records.lse.keeps(line(q))) records.lse.template of<float>(line(q))[head(q)] = found.log_sum_exp();
        }
        multiply(queries, width, columns / EACH_HOLDS, rows(scores, row),
                 values(layer.prompt_values, of_prompt(), AHEAD), output, width, false);
        for (long q = 0; q < queries; q = end(q))
            multiply(end(q) - q, width, pieces(lines.written, EACH_HOLDS),
                     rows(scores + q * row + columns / EACH_HOLDS, row), values(layer.values, answer(q), next_answer),
                     output + q * width, width, true);
        for (long q = 0; q < queries; q++) put_output(output + q * width, inverse[q], q, into);
    }

    // The output [w] of a query times its factor.
    void put_output(const float *x, float factor, long q, float *into) const {
        for (long i = 0; i < model.width; i += LANES) {
            const long columns = std::min(LANES, model.width - i), at = head(q) * model.width + i;
            const Floats y = result(layer.heads, factor * load(x + i));
            put(into + line(q) * model.heads * model.width + at, columns, y);
            records.attended.put(line(q), at, columns, y);
        }
    }
};

// The attention of a batch, of which `part` is a prompt and a head of keys, or one of `each` parts of these.
template <class T>
void attend(const StepModel &model, const Layer &layer, const StepLines &lines, const Records &records, long part,
            long each, const float *heads, float *into, float *workspace) {
    const long shared = model.heads / model.keys, pair = part / each, prompt = pair / model.keys, key = pair % model.keys;
    const long queries = (lines.first[prompt + 1] - lines.first[prompt]) * shared, blocks = blocks_of(queries);
    const long first = blocks * (part % each) / each, last = blocks * (part % each + 1) / each;
    for (long block = first; block < last; block++) {
        const long start = queries * block / blocks, end = queries * (block + 1) / blocks;
        LineAttention<T>{{model, layer, lines}, records, prompt, key, start, end - start, workspace}.attend(heads, into);
    }
}

}  // namespace
