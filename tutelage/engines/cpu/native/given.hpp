// What Python fills in: bindings.py has the same structures.
#pragma once

#include <cstdint>

struct Team {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);  // GOMP_parallel, or null: one thread
    int (*thread)();
    int64_t threads;
};

// W as panels [ceil(out / 16)][in][16], and b or null.
struct Matrix {
    const float *panels, *bias;
    int64_t out, in;
};

struct Layer {
    Matrix heads, mixed, gate_and_up, down;  // [q | k | v], o, panels of gate and up by turns, down
    const float *norm, *query_norm, *key_norm, *gate_norm;
    float epsilon, query_epsilon, key_epsilon, gate_epsilon, scale;
    const float *prompt_keys, *prompt_values;
    float *keys, *values;
};

struct Model {
    const Layer *layers;
    int64_t count, hidden, heads, keys, width, inner;
    const float *norm;
    float epsilon;
};

// Where the answers are: lines first[p] to first[p + 1] answer prompt p, in slots of its own.
struct Lines {
    int64_t count, prompts, longest, written;
    const int64_t *first, *lengths, *slots;
    int64_t prompt_keys[3], prompt_values[3], answers[4];  // strides: [P, K, w]; [P, K, Q]; [P, K, G, room]
};

// Where what layers compute is kept: of each layer and group of lines a block with room for `places` tokens, kind by
// kind. A line's tokens lie one behind the other from `first` on.
struct Kept {
    float *const *blocks;  // [layers][groups]
    int64_t groups;
    const int64_t *places;         // [groups]
    const int64_t *group, *first;  // [n]
};

// A line of N tokens: sequences one behind the other, each with the stem that it continues, or itself. `spot` is where
// the tokens of a stem with branches are among those of all such stems, -1 for other sequences. What branches add to
// their stem goes to several sums, so that as many threads can work on it: `sum` is that of a branch, -1 where one
// before it in the same sum says in `next` when it is its turn (-1: the last), and `sums` how many a stem has.
struct Line {
    int64_t heads, keys, width, sequences;
    int64_t longest, all_columns, stem_tokens;  // columns of the longest row of scores; of all sequences together
    const int64_t *first, *length, *stem, *columns, *spot, *sum, *next, *sums;  // [sequences]; columns: those before
    float scale;
    const float *query, *key, *value;  // [N][H][w], [N][K][w] twice
};
