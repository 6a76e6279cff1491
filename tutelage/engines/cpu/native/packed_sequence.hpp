// The sequences of a packed sequence (see ../../packing.py), and how the work on their attention is divided. Every token
// attends to the whole shared prefix that its sequence continues and, causally, to its own sequence.
//
// The work is divided by sequences and heads of keys, so that one thread alone writes the gradients of a sequence's own
// keys. The gradients that suffixes contribute to the keys of their prefix go to a few accumulators. One thread adds
// all suffixes of an accumulator in their order, and the accumulators are added up at the end: no result depends on the
// order in which threads finish.
#pragma once

#include "score_rows.hpp"
#include "structs.hpp"
#include "threads.hpp"

namespace {

constexpr long BLOCK = 48;  // queries at once; an even number

// One sequence as keys: it begins at `token` of the sequences. Its keys in another layout, padded to `columns` tokens of w
// numbers, begin at number `copy` of such a copy.
struct Keys {
    long token, length, columns, copy;
};

// A packed sequence, and where its parts are.
struct PackedView {
    const PackedSequence &packed;

    Keys keys(long sequence, long key) const {
        const long columns = round_up(packed.length[sequence], LANES);
        return {packed.first[sequence], packed.length[sequence], columns,
                (packed.columns[sequence] * packed.keys + key * columns) * packed.width};
    }
    template <class T>
    T *of_key(T *x, long token, long key) const {
        return x + (token * packed.keys + key) * packed.width;
    }
    void add(const float *x, float *to, long token, long key) const {
        to = of_key(to, token, key);
        for (long i = 0; i < packed.width; i += LANES) store(to + i, load(to + i) + load(x + i));
    }
    bool has_prefix(long sequence) const { return packed.prefix[sequence] != sequence; }

    // Calls work(keys, head of keys) for all sequences and heads of keys.
    template <class Work>
    void for_keys(Worker &worker, const Work &work) const {
        worker.share(packed.sequences * packed.keys, 8 * worker.threads, [&](long first, long end) {
            for (long part = first; part < end; part++)
                work(keys(part / packed.keys, part % packed.keys), part % packed.keys);
        });
    }
};

// The workspace of one thread.
struct Workspace {
    float *queries, *out_gradients, *tile, *scores, *score_gradients;  // [BLOCK][w] each, then [BLOCK][longest]

    Workspace(const PackedSequence &packed, float *floats)
        : queries(floats),
          out_gradients(queries + BLOCK * packed.width),
          tile(out_gradients + BLOCK * packed.width),
          scores(tile + BLOCK * packed.width),
          score_gradients(scores + BLOCK * packed.longest) {}

    static long floats(const PackedSequence &packed) { return BLOCK * (3 * packed.width + 2 * packed.longest); }
};

// Up to BLOCK queries of one head, from `start` of a sequence on, and the keys that they attend to: the keys of the
// prefix in the first columns of a row of scores, the keys of their own sequence after them.
struct Queries {
    const PackedView &view;
    const PackedSequence &packed;
    long key, head, start, count, first;  // `first` of the queries of all sequences
    Keys prefix, own;
    long seen, row;  // own columns that are read, and all columns of a row of scores

    Queries(const PackedView &view, long sequence, long key, long head, long start, long most)
        : view(view), packed(view.packed), key(key), head(head), start(start) {
        own = view.keys(sequence, key);
        prefix = view.has_prefix(sequence) ? view.keys(packed.prefix[sequence], key) : Keys{0, 0, 0, 0};
        count = std::min(most, own.length - start);
        first = packed.queries[sequence] + start - packed.skipped[sequence];
        seen = round_up(start + count, LANES), row = prefix.columns + seen;
    }

    long lse_index(long query) const { return (first + query) * packed.heads + head; }  // of [N][H]
    long index(long query) const { return lse_index(query) * packed.width; }                // of [N][H][w]

    // The scores of a query, of [count][row].
    ScoreRow scores(float *all, long query) const {
        return {all + query * row, prefix.length, prefix.columns, start + query + 1, seen};
    }
};

// Calls work(queries) for all blocks of `block` queries of all heads that share the head of keys `key`.
template <class Work>
void for_queries(const PackedView &view, long sequence, long key, long block, const Work &work) {
    const PackedSequence &packed = view.packed;
    const long shared = packed.heads / packed.keys;
    for (long head = key * shared; head < (key + 1) * shared; head++)
        for (long start = packed.skipped[sequence]; start < packed.length[sequence]; start += block)
            work(Queries(view, sequence, key, head, start, block));
}

// An accumulator: gradients of the keys and values of a prefix, which are defined once `begun`.
struct PrefixGradients {
    float *keys, *values;
    bool begun;
};

// Calls work(queries, prefix gradients) for all blocks, which adds to the gradients of keys and values: those of the own
// sequence, which are zeros before, and those of the prefix. `accumulated` has room for [most accumulators of a
// prefix][2][prefix tokens][K][w]. Takes two phases.
template <class Work>
void collect_gradients(Worker &worker, const PackedView &view, float *to_key, float *to_value, float *accumulated,
                       const Work &work) {
    const PackedSequence &packed = view.packed;
    const long parts = packed.sequences * packed.keys, prefixes = packed.prefix_tokens * packed.keys * packed.width;
    worker.share(parts, parts, [&](long part, long) {
        const long leader = part / packed.keys, key = part % packed.keys;
        if (packed.accumulator[leader] < 0) return;
        float *keys = accumulated + packed.accumulator[leader] * 2 * prefixes;
        const long offset = packed.offset[packed.prefix[leader]];
        PrefixGradients prefix{view.of_key(keys, offset, key), view.of_key(keys + prefixes, offset, key), false};
        for (long sequence = leader; sequence >= 0; sequence = packed.next_suffix[sequence]) {
            for (long t = packed.first[sequence]; t < packed.first[sequence] + packed.length[sequence]; t++) {
                std::fill_n(view.of_key(to_key, t, key), packed.width, 0.0f);
                std::fill_n(view.of_key(to_value, t, key), packed.width, 0.0f);
            }
            for_queries(view, sequence, key, BLOCK, [&](const Queries &block) { work(block, prefix), prefix.begun = true; });
        }
    });
    worker.share(parts, parts, [&](long part, long) {
        const long sequence = part / packed.keys, key = part % packed.keys, offset = packed.offset[sequence];
        for (long t = 0; packed.accumulators[sequence] && t < packed.length[sequence]; t++)
            for (long n = 0; n < packed.accumulators[sequence]; n++) {
                const float *keys = view.of_key(accumulated + n * 2 * prefixes, offset + t, key);
                view.add(keys, to_key, packed.first[sequence] + t, key);
                view.add(keys + prefixes, to_value, packed.first[sequence] + t, key);
            }
    });
}

}  // namespace
