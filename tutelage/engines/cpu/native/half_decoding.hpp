// The attention of a decoding step in bfloat16: bit for bit that of half_attention.hpp, where the prompt is the shared
// prefix and the answer a suffix. Keys [token][w] and values [w][token] are multiplied with columns of 16 queries:
//     S^T = K Q^T [tokens][16]        O^T = V^T P^T [w][16]
// Rows of scores are padded to 16 tokens, of the prompt and of the answer. Softmax's sum has one term for each residue of
// the token modulo 16, which are added up in the order of `sum`.
#pragma once

#include "attention.hpp"
#include "tiles.hpp"

namespace {

struct HalfBlock : Block {
    // Attention of the block: heads [n][H + 2K][w] → [n][H w], normalised.
    void attend(const float *heads, float *into) const {
        const long length = lines.lengths[prompt], width = model.width;
        const long padded = round_up(length, LANES), all = round_up(lines.longest, 2 * LANES);
        Pair *queries_of_block = reinterpret_cast<Pair *>(workspace);
        float *output = workspace + round_up(width, LANES) / 2 * LANES, *of_line = output + round_up(width, LANES) * LANES;
        float *before = of_line + round_up(width, LANES) * LANES, *after = before + all * LANES;
        float *spare = after + round_up(lines.written, 2 * LANES) * LANES;
        pair_queries(heads, queries_of_block);
        score(queries_of_block, length, before, after, spare);
        const SoftmaxSums found = softmax_pairs(length, before, after);
        const Floats inverse = 1.0f / found.sums;
        put_lse(found);
        const int64_t *step = lines.prompt_values;
        const Half *values = reinterpret_cast<const Half *>(layer.prompt_values) + prompt * step[0] + key * step[1];
        multiply(width, LANES, padded / 2, rows_of(values, step[2]), reinterpret_cast<const Pair *>(before), LANES,
                 output, LANES, false);
        const long room = value_step(model, lines);
        alignas(64) float lane[LANES];
        for (long q = 0; q < queries; q = end(q)) {
            std::copy_n(output, width * LANES, of_line);
            values = reinterpret_cast<const Half *>(layer.values) + answer(q);
            multiply(width, LANES, (lines.written + 1) / 2, rows_of(values, room), reinterpret_cast<const Pair *>(after),
                     LANES, of_line, LANES, true);
            for (long i = 0; i < width; i++) {
                store(lane, rounded_floats(load(of_line + i * LANES) * inverse));
                for (long own = q; own < end(q); own++)
                    into[(line(own) * model.heads + head(own)) * width + i] = lane[own];
            }
            put_attended(into, q);
        }
    }

    // Records the attention of the queries of one line, from q on.
    void put_attended(const float *attended, long q) const {
        const long width = model.width;
        for (long own = q; own < end(q) && records.attended; own++)
            for (long i = 0; i < width; i += LANES) {
                const long columns = std::min(LANES, width - i), at = head(own) * width + i;
                const float *from = attended + line(own) * model.heads * width + at;
                records.attended.put(line(own), at, columns, load_some(from, columns));
            }
    }

    // A matrix of pairs that follow each other in its rows, which are `step` numbers apart.
    static MatrixView<Pair> rows_of(const Half *x, long step) { return {reinterpret_cast<const Pair *>(x), step / 2, 1}; }

    // The queries in pairs of features [w / 2][16], with zeros after the last query.
    void pair_queries(const float *heads, Pair *into) const {
        const long width = model.width, row = (model.heads + 2 * model.keys) * width;
        std::fill_n(into, width / 2 * LANES, Pair{});
        for (long q = 0; q < queries; q++) {
            const float *query = heads + line(q) * row + head(q) * width;
            for (long i = 0; i < width; i += LANES) {
                const long count = std::min(LANES, width - i);
                alignas(64) Half part[LANES];
                store(part, load_some(query + i, count));
                for (long j = 0; j < count; j += 2) {
                    std::memcpy(into + (i + j) / 2 * LANES + q, part + j, sizeof(Pair));
                }
            }
        }
    }

    // Products with the keys of the prompt, [length][16], and of the answers, [written][16]. `spare` has the size of these.
    void score(const Pair *query, long length, float *before, float *after, float *spare) const {
        const int64_t *step = lines.prompt_keys;
        const Half *keys = reinterpret_cast<const Half *>(layer.prompt_keys) + prompt * step[0] + key * step[1];
        multiply(length, LANES, model.width / 2, rows_of(keys, step[2]), query, LANES, before, LANES, false);
        std::fill_n(after, lines.written * LANES, 0.0f);
        for (long q = 0; q < queries; q = end(q)) {
            keys = reinterpret_cast<const Half *>(layer.keys) + answer(q);
            multiply(lines.written, LANES, model.width / 2, rows_of(keys, lines.answers[3]), query, LANES, spare, LANES,
                     false);
            for (long t = 0; t < lines.written; t++)
                std::copy_n(spare + t * LANES + q, end(q) - q, after + t * LANES + q);
        }
    }

    // Replaces scores by the numerators of the softmax, in pairs of tokens in the same place. The sums are those of numbers
    // that are not rounded.
    SoftmaxSums softmax_pairs(long length, float *before, float *after) const {
        Floats most = layer.scale * load(after);
        const auto scale_all = [&](float *scores, long count) {
            for (long t = 0; t < count; t++) {
                const Floats x = layer.scale * load(scores + t * LANES);
                store(scores + t * LANES, x), most = larger(x, most);
            }
        };
        scale_all(before, length), scale_all(after, lines.written);
        alignas(64) float sums[LANES * LANES] = {};
        const auto numerators = [&](float *scores, long count) {
            const auto at = [&](long t) {
                if (t >= count) return Floats{};
                const Floats x = exponential(load(scores + t * LANES) - most);
                float *sum = sums + t % LANES * LANES;
                store(sum, load(sum) + x);
                return x;
            };
            for (long t = 0; t < round_up(count, LANES); t += 2) {
                const Floats first = at(t), second = at(t + 1);
                store_pairs(reinterpret_cast<Pair *>(scores + t / 2 * LANES), first, second);
            }
        };
        numerators(before, length), numerators(after, lines.written);
        const auto at = [&](long residue) { return load(sums + residue * LANES); };
        Floats four[4];
        for (long i = 0; i < 4; i++) four[i] = (at(i) + at(8 + i)) + (at(4 + i) + at(12 + i));
        return {(four[0] + four[2]) + (four[1] + four[3]), most};
    }
};

}  // namespace
