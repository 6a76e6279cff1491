// The attention of the next tokens of a line to its prompt and, causally, to its answer so far and to themselves.
#pragma once

#include "attention.hpp"

namespace {

// Up to 16 queries of one head of keys: those of the heads that share the keys, token after token. `lines` is one line of
// one prompt, before these tokens. The bits are those of `LineAttention` for one token after the other.
template <class T>
struct PieceAttention : CachedKeys<T> {
    using CachedKeys<T>::model, CachedKeys<T>::layer, CachedKeys<T>::lines, CachedKeys<T>::shared, CachedKeys<T>::rows,
        CachedKeys<T>::keys, CachedKeys<T>::values;
    long key, start, queries;  // `start` counts the queries of the key before these
    float *workspace;

    long index(long query) const {  // of [tokens][H][w]
        return ((start + query) / shared() * model.heads + key * shared() + (start + query) % shared()) * model.width;
    }
    long seen(long query) const { return lines.written + (start + query) / shared() + 1; }  // tokens of the answer

    void attend(const float *query, float *into) const {
        constexpr long EACH_HOLDS = NUMBERS<T>;
        const long width = padded_width(model), depth = width / EACH_HOLDS, length = lines.lengths[0];
        const long last = seen(queries - 1), columns = round_up(length, LANES), row = columns + round_up(last, LANES);
        const long prompt = key * lines.prompt_steps[1], answer = key * lines.answers[1];
        const T *rounded = reinterpret_cast<const T *>(workspace);
        float *output = workspace + LANES * width, *scores = output + LANES * width;
        for (long q = 0; q < queries; q++) this->put_query(query + index(q), workspace, q);
        multiply(queries, columns, depth, rows(rounded, depth), keys(layer.prompt_keys, prompt), scores, row, false);
        multiply(queries, row - columns, depth, rows(rounded, depth), keys(layer.keys, answer), scores + columns, row,
                 false);
        alignas(64) float inverse[LANES];
        for (long q = 0; q < queries; q++)
            inverse[q] = 1.0f / this->softmax({scores + q * row, length, columns, seen(q), row - columns}).sum;
        multiply(queries, width, columns / EACH_HOLDS, rows(scores, row), values(layer.prompt_values, prompt), output, width,
                 false);
        multiply(queries, width, pieces(last, EACH_HOLDS), rows(scores + columns / EACH_HOLDS, row),
                 values(layer.values, answer), output, width, true);
        for (long q = 0; q < queries; q++)
            for (long i = 0; i < model.width; i += LANES)
                put(into + index(q) + i, std::min(LANES, model.width - i),
                    result(layer.heads, inverse[q] * load(output + q * width + i)));
    }
};

// Stores keys and values [tokens][K][w] of one line.
inline void store_tokens(const StepModel &model, const Layer &layer, StepLines lines, long tokens, const float *key,
                         const float *value) {
    const auto store = layer.heads.half ? store_token<Pair> : store_token<float>;
    for (long t = 0; t < tokens; t++) {
        lines.written++;
        for (long k = 0; k < model.keys; k++, key += model.width, value += model.width)
            store(model, layer, lines, k * lines.answers[1], key, value);
    }
}

// The attention of one head of keys, in one of `each` parts of its queries.
template <class T>
void attend_piece(const StepModel &model, const Layer &layer, const StepLines &lines, long tokens, long key, long part,
                  long each, const float *query, float *into, float *workspace) {
    const long queries = tokens * (model.heads / model.keys), blocks = blocks_of(queries);
    for (long block = blocks * part / each; block < blocks * (part + 1) / each; block++) {
        const long start = queries * block / blocks, end = queries * (block + 1) / blocks;
        PieceAttention<T>{{model, layer, lines}, key, start, end - start, workspace}.attend(query, into);
    }
}

}  // namespace
