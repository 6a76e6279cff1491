// The attention of a decoding step in bfloat16: bit for bit that of half_attention.hpp, where the prompt is the shared
// prefix and the answer a suffix.
//
//     S = Q K^T      pairs of features      Q [16][w / 2], K [w / 2][16 tokens] in blocks
//     O = P V        pairs of tokens        P [16][tokens / 2], V [tokens / 2][w]
//
// Keys and values of a prompt or an answer are blocks of 16 tokens, with w padded to a multiple of 16: [w / 2][16] pairs of
// keys, [8][w] pairs of values (`PairLayout` in kv_layout.py). What nobody stored is zero.
#pragma once

#include "attention.hpp"
#include "score_rows.hpp"
#include "tiles.hpp"

namespace {

struct HalfBlock : Block {
    // Attention of the block: heads [n][H + 2K][w] → [n][H w], normalised.
    void attend(const float *heads, float *into) const {
        const long width = padded_width(model), length = lines.lengths[prompt], columns = round_up(length, LANES);
        const long row = columns + round_up(lines.written, LANES);
        Half *rounded = reinterpret_cast<Half *>(workspace);
        float *output = workspace + LANES * width / 2, *scores = output + LANES * width;
        put_queries(heads, rounded);
        multiply(queries, columns, width / 2, pairs(rounded, width / 2), keys(layer.prompt_keys, of_prompt()), scores, row,
                 false);
        for (long q = 0; q < queries; q = end(q))
            multiply(end(q) - q, row - columns, width / 2, pairs(rounded + q * width, width / 2),
                     keys(layer.keys, answer(q)), scores + q * row + columns, row, false);
        alignas(64) float inverse[LANES];
        for (long q = 0; q < queries; q++) {
            const ScoreRow of_query{scores + q * row, length, columns, lines.written, row - columns};
            of_query.scale(layer.scale);
            const SoftmaxSum found = of_query.half_softmax();
            inverse[q] = 1.0f / found.sum;
            if (records.lse.keeps(line(q))) records.lse.of<float>(line(q))[head(q)] = found.log_sum_exp();
        }
        multiply(queries, width, columns / 2, pairs(scores, row), values(layer.prompt_values, of_prompt()), output, width,
                 false);
        for (long q = 0; q < queries; q = end(q))
            multiply(end(q) - q, width, (lines.written + 1) / 2, pairs(scores + q * row + columns / 2, row),
                     values(layer.values, answer(q)), output + q * width, width, true);
        for (long q = 0; q < queries; q++) put_output(output + q * width, inverse[q], q, into);
    }

    long of_prompt() const { return prompt * lines.prompt_keys[0] + key * lines.prompt_keys[1]; }

    // Rows of pairs, `row` pairs apart.
    template <class T>
    static MatrixView<Pair> pairs(const T *x, long row) {
        return {reinterpret_cast<const Pair *>(x), row, 1};
    }
    VectorView<Pair> keys(const float *all, long place) const {
        return {pairs_at(all, place), LANES, padded_width(model) / 2 * LANES};
    }
    VectorView<Pair> values(const float *all, long place) const { return {pairs_at(all, place), padded_width(model)}; }
    static const Pair *pairs_at(const float *all, long place) { return reinterpret_cast<const Pair *>(all) + place / 2; }

    // The queries, rounded, in rows of padded features.
    void put_queries(const float *heads, Half *into) const {
        const long width = model.width, row = (model.heads + 2 * model.keys) * width;
        for (long q = 0; q < queries; q++)
            for (long i = 0; i < width; i += LANES)
                store(into + q * padded_width(model) + i,
                      load_some(heads + line(q) * row + head(q) * width + i, std::min(LANES, width - i)));
    }

    // The output [w] of a query times its factor, rounded.
    void put_output(const float *x, float factor, long q, float *into) const {
        for (long i = 0; i < model.width; i += LANES) {
            const long columns = std::min(LANES, model.width - i), at = head(q) * model.width + i;
            const Floats y = rounded_floats(factor * load(x + i));
            put(into + line(q) * model.heads * model.width + at, columns, y);
            records.attended.put(line(q), at, columns, y);
        }
    }
};

}  // namespace
