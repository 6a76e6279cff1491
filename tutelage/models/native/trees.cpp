// Attention of a line of trees, and its gradients. The equations are in trees.hpp.

#include "trees.hpp"

extern "C" {

// Floats that a thread needs, without the sums for stems.
int64_t tutelage_trees_desk(const Line *line) { return Desk::floats(*line); }

// [N][H][w], and the log-sum-exp of the scores [N][H]. `turned` has room for the keys, [columns][K][w], `room` for every
// thread's desk.
void tutelage_trees(const Team *team, const Line *line, float *out, float *ends, float *turned, float *room) {
    const Trees trees{*line};
    together(*team, 2, [&](Worker &me) {
        const Desk desk(*line, room + me.index * Desk::floats(*line));
        trees.turn(me, line->key, turned);
        const long parts = line->sequences * line->keys;
        me.share(parts, parts, [&](long part, long) {
            for_queries(trees, part / line->keys, part % line->keys,
                        [&](const Queries &block) { attend(block, turned, out, ends, desk); });
        });
    });
}

// Gradients [N][H][w] and twice [N][K][w], from that of `out`, [N][H][w]. `turned` has room for keys and values; `sums`
// [threads][2][stem tokens][K][w] are 0.
void tutelage_trees_gradients(const Team *team, const Line *line, const float *out, const float *ends,
                              const float *grad, float *to_query, float *to_key, float *to_value, float *turned,
                              float *sums, float *room) {
    const Trees trees{*line};
    const Slopes slopes{out, ends, grad, to_query, to_key, to_value};
    const long each = line->keys * line->width, stems = line->stem_tokens * each;
    float *turned_values = turned + line->all_columns * each;
    together(*team, 4, [&](Worker &me) {
        const Desk desk(*line, room + me.index * Desk::floats(*line));
        float *stem_keys = sums + me.index * 2 * stems, *stem_values = stem_keys + stems;
        trees.turn(me, line->key, turned);
        trees.turn(me, line->value, turned_values);
        const long parts = line->sequences * line->keys;
        me.share(parts, parts, [&](long part, long) {
            const long sequence = part / line->keys, key = part % line->keys, stem = line->stem[sequence];
            for (long t = line->first[sequence]; t < line->first[sequence] + line->length[sequence]; t++) {
                std::fill_n(trees.of_key(to_key, t, key), line->width, 0.0f);
                std::fill_n(trees.of_key(to_value, t, key), line->width, 0.0f);
            }
            const long spot = line->spot[stem];
            for_queries(trees, sequence, key, [&](const Queries &block) {
                differentiate(block, turned, turned_values, slopes, trees.of_key(stem_keys, spot, key),
                              trees.of_key(stem_values, spot, key), desk);
            });
        });
        me.share(line->sequences, line->sequences, [&](long sequence, long) {
            if (line->spot[sequence] < 0) return;
            const long count = line->length[sequence] * each, from = line->spot[sequence] * each;
            for (long thread = 0; thread < me.threads; thread++) {
                const float *keys = sums + thread * 2 * stems + from, *values = keys + stems;
                float *key = trees.of_key(to_key, line->first[sequence], 0);
                float *value = trees.of_key(to_value, line->first[sequence], 0);
                for (long i = 0; i < count; i++) key[i] += keys[i], value[i] += values[i];
            }
        });
    });
}
}
