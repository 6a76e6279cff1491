// Attention of a line of trees (see ../packing.py), forwards and backwards. Sequences stand in the line one behind the
// other; a branch sees all of its stem and, like a stem, itself up to each token. Rows of scores are whole: with S the
// scaled scores and e their log-sum-exp,
//
//     P = exp(S - e),  O = P V                 dS = P * (dO V^T - rowsum(dO * O))
//     dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO
//
// A part of the work is a sequence and a head of keys: so its own keys are nobody else's. What branches add to the
// gradients of their stem's keys goes to a few sums, each of branches that one part takes in their order; these are added
// up in the end. So no number depends on which thread came first.
#pragma once

#include <cmath>

#include "given.hpp"
#include "kernel.hpp"
#include "threads.hpp"

namespace {

constexpr int TALL = std::min(6, ROWS), WIDE = PARTS == 1 ? 4 : 1;  // sums of so many rows of so many vectors stay in
                                                                    // registers
constexpr long BLOCK = 48;  // queries at once

// A matrix A[r][k] = x[r * row + k * step].
struct Across {
    const float *x;
    long row, step;
};

template <int R, int V>
INLINE void tile(Across a, const float *b, long b_step, long depth, float *c, long c_row, bool onto) {
    Floats sums[R][V];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = onto ? load(c + r * c_row + v * LANES) : Floats{};
    for (long k = 0; k < depth; k++) {
        Floats columns[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) columns[v] = held(load(b + v * LANES));
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const Floats x = a.x[r * a.row];
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) sums[r][v] += x * columns[v];
        }
        a.x += a.step, b += b_step;
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + r * c_row + v * LANES, sums[r][v]);
}

template <int V, int R = TALL>
INLINE void of_height(int rows, Across a, const float *b, long b_step, long depth, float *c, long c_row, bool onto) {
    if (rows == R) return tile<R, V>(a, b, b_step, depth, c, c_row, onto);
    if constexpr (R > 1) of_height<V, R - 1>(rows, a, b, b_step, depth, c, c_row, onto);
}

template <int V>
void strip(long rows, Across a, const float *b, long b_step, long depth, float *c, long c_row, bool onto) {
    for (long r = 0; r < rows; r += TALL, a.x += TALL * a.row, c += TALL * c_row)
        of_height<V>(static_cast<int>(std::min<long>(TALL, rows - r)), a, b, b_step, depth, c, c_row, onto);
}

// C [rows][columns] = A B, or += where `onto`. The columns are a multiple of 16.
template <int V = WIDE>
void multiply(long rows, long columns, long depth, Across a, const float *b, long b_step, float *c, long c_row,
              bool onto) {
    for (; columns >= V * LANES; columns -= V * LANES, b += V * LANES, c += V * LANES)
        strip<V>(rows, a, b, b_step, depth, c, c_row, onto);
    if constexpr (V > 1)
        if (columns) multiply<V - 1>(rows, columns, depth, a, b, b_step, c, c_row, onto);
}

// One sequence as keys: they begin at `token` of the line, and in the turned copies at `turned` as [w][columns].
struct Keys {
    long token, length, columns, turned;
};

struct Trees {
    const Line &line;

    Keys keys(long sequence, long key) const {
        const long columns = upward(line.length[sequence], LANES);
        return {line.first[sequence], line.length[sequence], columns,
                (line.columns[sequence] * line.keys + key * columns) * line.width};
    }
    const float *of_key(const float *x, long token, long key) const {
        return x + (token * line.keys + key) * line.width;
    }
    float *of_key(float *x, long token, long key) const { return x + (token * line.keys + key) * line.width; }
    void add(const float *x, float *to, long token, long key) const {
        to = of_key(to, token, key);
        for (long i = 0; i < line.width; i += LANES) store(to + i, load(to + i) + load(x + i));
    }
    bool has_stem(long sequence) const { return line.stem[sequence] != sequence; }

    // [N][K][w] → of each sequence and key [w][columns], zeros behind its end.
    void turn(Worker &me, const float *x, float *into) const {
        me.share(line.sequences * line.keys, 8 * me.threads, [&](long first, long behind) {
            for (long part = first; part < behind; part++) {
                const Keys own = keys(part / line.keys, part % line.keys);
                const float *from = of_key(x, own.token, part % line.keys);
                float *to = into + own.turned;
                for (long i = 0; i < own.columns; i += LANES)
                    for (long k = 0; k < line.width; k++)
                        for (long j = i; j < i + LANES; j++)
                            to[k * own.columns + j] = j < own.length ? from[j * line.keys * line.width + k] : 0.0f;
            }
        });
    }
};

// What one thread works with.
struct Desk {
    float *queries, *gradients, *tile, *scores, *slopes;  // [BLOCK][w] each, then [BLOCK][longest]

    Desk(const Line &line, float *room)
        : queries(room),
          gradients(queries + BLOCK * line.width),
          tile(gradients + BLOCK * line.width),
          scores(tile + BLOCK * line.width),
          slopes(scores + BLOCK * line.longest) {}

    static long floats(const Line &line) { return BLOCK * (3 * line.width + 2 * line.longest); }
};

// Up to BLOCK queries of one head, from `start` of a sequence on, and the keys that they see: those of the stem in the
// first columns of a row of scores, their own behind them.
struct Queries {
    const Trees &trees;
    const Line &line;
    long key, head, start, count;
    Keys stem, own;
    long seen, row;  // own columns that are looked at, and all

    Queries(const Trees &trees, long sequence, long key, long head, long start)
        : trees(trees), line(trees.line), key(key), head(head), start(start) {
        own = trees.keys(sequence, key);
        stem = trees.has_stem(sequence) ? trees.keys(line.stem[sequence], key) : Keys{0, 0, 0, 0};
        count = std::min(BLOCK, own.length - start);
        seen = upward(start + count, LANES), row = stem.columns + seen;
    }

    long end_at(long query) const { return (own.token + start + query) * line.heads + head; }  // of [N][H]
    long at(long query) const { return end_at(query) * line.width; }                            // of [N][H][w]

    void copy(const float *x, float factor, float *into) const {
        for (long q = 0; q < count; q++)
            for (long i = 0; i < line.width; i++) into[q * line.width + i] = factor * x[at(q) + i];
    }

    // [count][w] times the keys or values that were turned → [count][row]
    void against(const float *x, const float *turned, float *into) const {
        const Across a{x, line.width, 1};
        if (stem.columns)
            multiply(count, stem.columns, line.width, a, turned + stem.turned, stem.columns, into, row, false);
        multiply(count, seen, line.width, a, turned + own.turned, own.columns, into + stem.columns, row, false);
    }

    // [count][row] times keys or values as they are → [count][w]
    void along(const float *x, const float *values, float *into) const {
        const long step = line.keys * line.width;
        if (stem.length)
            multiply(count, line.width, stem.length, {x, row, 1}, trees.of_key(values, stem.token, key), step, into,
                     line.width, false);
        multiply(count, line.width, start + count, {x + stem.columns, row, 1}, trees.of_key(values, own.token, key),
                 step, into, line.width, stem.length > 0);
    }

    // += [count][row] turned, times [count][w]: to keys or values of the own sequence, and to those of the stem, where
    // there is something only if `begun`.
    void back(const float *x, const float *by, float *to_own, float *to_stem, bool begun) const {
        const long step = line.keys * line.width;
        if (stem.length) multiply(stem.length, line.width, count, {x, 1, row}, by, line.width, to_stem, step, begun);
        multiply(start + count, line.width, count, {x + stem.columns, 1, row}, by, line.width,
                 trees.of_key(to_own, own.token, key), step, true);
    }

    // change(x [16]) of all scores of a query that count; the others become 0.
    template <class Change>
    void each(float *scores, long query, const Change &change) const {
        float *x = scores + query * row;
        change_some(x, stem.length, stem.columns, change);
        change_some(x + stem.columns, start + query + 1, seen, change);
    }

    template <class Change>
    static void change_some(float *x, long valid, long columns, const Change &change) {
        long i = 0;
        for (; i + LANES <= valid; i += LANES) store(x + i, change(load(x + i)));
        if (i < valid) {
            alignas(64) float part[LANES];
            store(part, change(load(x + i)));
            for (long j = 0; j < LANES; j++) x[i + j] = i + j < valid ? part[j] : 0.0f;
            i += LANES;
        }
        for (; i < columns; i += LANES) store(x + i, Floats{});
    }

    float largest(const float *scores, long query) const {
        const float *x = scores + query * row;
        const Floats most = larger(x, stem.length, Floats(x[stem.columns]));
        return ::largest(larger(x + stem.columns, start + query + 1, most));
    }
};

// work(queries) for all blocks of all heads that share the key.
template <class Work>
void for_queries(const Trees &trees, long sequence, long key, const Work &work) {
    const Line &line = trees.line;
    const long shared = line.heads / line.keys;
    for (long head = key * shared; head < (key + 1) * shared; head++)
        for (long start = 0; start < line.length[sequence]; start += BLOCK)
            work(Queries(trees, sequence, key, head, start));
}

// Whole attention of a block: out [N][H][w] and ends [N][H].
void attend(const Queries &block, const float *turned_keys, float *out, float *ends, const Desk &desk) {
    const Line &line = block.line;
    block.copy(line.query, line.scale, desk.queries);
    block.against(desk.queries, turned_keys, desk.scores);
    alignas(64) float inverse[BLOCK];
    for (long q = 0; q < block.count; q++) {
        const float most = block.largest(desk.scores, q);
        block.each(desk.scores, q, [&](Floats x) { return exponential(x - most); });
        Floats sums{};
        for (long i = 0; i < block.row; i += LANES) sums += load(desk.scores + q * block.row + i);
        const float total = sum(sums);
        inverse[q] = 1.0f / total;
        ends[block.end_at(q)] = most + std::log(total);
    }
    block.along(desk.scores, line.value, desk.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < line.width; i++) out[block.at(q) + i] = inverse[q] * desk.tile[q * line.width + i];
}

struct Slopes {
    const float *out, *ends, *grad;
    float *to_query, *to_key, *to_value;
};

// What branches add to the gradients of their stem's keys and values, `begun` as soon as there is something.
struct Sum {
    float *keys, *values;
    bool begun;
};

// The gradients of a block; those of its own keys and values are added to what is there.
void differentiate(const Queries &block, const float *turned_keys, const float *turned_values, const Slopes &slopes,
                   Sum &of_stem, const Desk &desk) {
    const Line &line = block.line;
    block.copy(line.query, line.scale, desk.queries);
    block.copy(slopes.grad, 1.0f, desk.gradients);
    block.against(desk.queries, turned_keys, desk.scores);
    block.against(desk.gradients, turned_values, desk.slopes);
    for (long q = 0; q < block.count; q++) {
        const float end = slopes.ends[block.end_at(q)];
        block.each(desk.scores, q, [&](Floats x) { return exponential(x - end); });
        Floats products{};
        for (long i = 0; i < line.width; i += LANES)
            products += load(desk.gradients + q * line.width + i) * load(slopes.out + block.at(q) + i);
        const float mean = sum(products);
        float *slope = desk.slopes + q * block.row, *share = desk.scores + q * block.row;
        for (long i = 0; i < block.row; i += LANES) store(slope + i, load(share + i) * (load(slope + i) - mean));
    }
    block.back(desk.scores, desk.gradients, slopes.to_value, of_stem.values, of_stem.begun);
    block.back(desk.slopes, desk.queries, slopes.to_key, of_stem.keys, of_stem.begun);
    of_stem.begun = true;
    block.along(desk.slopes, line.key, desk.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < line.width; i++)
            slopes.to_query[block.at(q) + i] = line.scale * desk.tile[q * line.width + i];
}

}  // namespace
