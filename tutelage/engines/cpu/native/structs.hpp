// The structs that Python fills in. structs.py declares the same ones for ctypes; structs.cpp tells Python their sizes,
// and the library is refused where a size differs.
#pragma once

#include <cstdint>

// The threads of torch's OpenMP runtime, through two functions of that runtime.
struct ThreadPool {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);  // GOMP_parallel, or null: one thread
    int (*thread)();                                                 // omp_get_thread_num
    int64_t threads;
};

// Features of a panel in bfloat16: a multiple of 32, with zeros after the last one.
inline int64_t padded_features(int64_t in) { return (in + 31) / 32 * 32; }

// A linear layer: W [out][in] as panels [ceil(out / 16)][in][16], and b [out] or null. Where it is `half`, the panels are
// in bfloat16, [ceil(out / 16)][padded in / 2][16][2], and the lines that they are multiplied with are rounded to that.
// Lines have `beyond` more features than `in`, which follow in their blocks and are not multiplied.
//
// With an adapter of `rank` the matrix is [W | s B], and its lines are [x | t] with t = A x, rounded: `lora_a` are the
// panels of A [rank][in - rank]. Only where it is `half`; a decoding step takes multiples of 32 features of x alone.
//
// Where it is `alternating`, panels of the first and of the second half of the rows of W alternate.
struct Matrix {
    const float *panels, *bias, *lora_a;
    int64_t out, in, rank, beyond, half, alternating;

    const float *panel(long index) const { return panels + index * 16 * (half ? padded_features(in) / 2 : in); }
    int64_t features() const { return in - rank; }  // of x
    int64_t count() const { return alternating ? 2 * ((out / 2 + 15) / 16) : (out + 15) / 16; }  // of panels
    Matrix adapter() const { return {lora_a, nullptr, nullptr, rank, features(), 0, rank, half, false}; }
};

// The weights of a transformer layer, and the addresses of its keys and values.
struct Layer {
    Matrix heads, mixed, gate_and_up, down;  // [q | k | v], o, alternating panels of gate and up, down
    const float *norm, *query_norm, *key_norm, *gate_norm;
    float epsilon, query_epsilon, key_epsilon, gate_epsilon, scale;
    const float *prompt_keys, *prompt_values;
    float *keys, *values;
};

// All layers of a model, which have one shape, and the last norm.
struct StepModel {
    const Layer *layers;
    int64_t count, hidden, heads, keys, width, inner;
    const float *norm;
    float epsilon;
};

// The lines of a decoding step: lines first[p] to first[p + 1] are the answers to prompt p, and slots[line] is the slot
// of a line among those of its prompt.
struct StepLines {
    int64_t count, prompts, longest, written;
    const int64_t *first, *lengths, *slots;
    // Strides of keys and values in blocks of 16 tokens: those of P and K of the prompts [P, K, blocks], those of P, K and
    // G of the answers [P, K, G, blocks].
    int64_t prompt_steps[2], answers[3];
};

// Where the activations of the layers are kept. Each layer and group of lines has a block with room for `places`
// tokens, one kind of activation after the other. The tokens of a line are consecutive and begin at `first`. The group of
// a line of which nothing is kept is negative.
struct ActivationBlocks {
    char *const *blocks;  // [layers][groups]
    int64_t groups;
    const int64_t *places;         // [groups]
    const int64_t *group, *first;  // [n]
};

// C [rows][columns] = A B + bias, or += A B + bias where `accumulate` is not 0, in float32, with A[i][k] = a[i * a_row +
// k * a_step], B[k][j] = b[k * b_row + j * b_step] and C[i][j] = c[i * c_row + j]. One of the steps of each of A and B is 1.
// `bias` may be null.
struct FloatProduct {
    int64_t rows, columns, depth;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_row, b_step;
    const float *bias;
    float *c;
    int64_t c_row, accumulate;
};

// A packed sequence of N tokens in consecutive sequences (shared prefixes, suffixes and lone sequences) of M tokens: the
// first tokens of a sequence may stand in an earlier one. Keys and values are of M tokens, queries of N. Per sequence:
//     first, length    its first token, and its number of tokens
//     skipped          the number of its first tokens that stand in an earlier one
//     queries          the query of the token after these
//     prefix           the shared prefix that it continues; its own number where there is none
//     columns          the padded tokens of all sequences before it
//     offset           of a prefix with suffixes: the tokens of such prefixes before it; -1 for other sequences
//     accumulators     of a prefix: the number of its gradient accumulators, which as many threads can add to at once
//     accumulator      of a suffix: the accumulator that it is the first to add to; -1 where another suffix is before it;
//                      0 of other sequences
//     next_suffix      the next suffix that adds to the same accumulator; -1 after the last
struct PackedSequence {
    int64_t heads, keys, width, sequences;
    int64_t longest, all_columns, prefix_tokens;  // columns of the longest row of scores; of all sequences together
    const int64_t *first, *length, *skipped, *queries, *prefix, *columns, *offset, *accumulator, *next_suffix,
        *accumulators;
    float scale;
    const float *query, *key, *value;  // [N][H][w], [M][K][w] twice; in bfloat16 for half_attention.hpp
};
