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

// Gradients [N][H][w] and twice [N][K][w], from that of `out`, [N][H][w]. `turned` has room for keys and values, `sums`
// for [most sums of a stem][2][stem tokens][K][w].
void tutelage_trees_gradients(const Team *team, const Line *line, const float *out, const float *ends,
                              const float *grad, float *to_query, float *to_key, float *to_value, float *turned,
                              float *sums, float *room) {
    const Trees trees{*line};
    const Slopes slopes{out, ends, grad, to_query, to_key, to_value};
    const long each = line->keys * line->width, stems = line->stem_tokens * each;
    float *turned_values = turned + line->all_columns * each;
    together(*team, 4, [&](Worker &me) {
        const Desk desk(*line, room + me.index * Desk::floats(*line));
        trees.turn(me, line->key, turned);
        trees.turn(me, line->value, turned_values);
        const long parts = line->sequences * line->keys;
        me.share(parts, parts, [&](long part, long) {
            const long leader = part / line->keys, key = part % line->keys;
            if (line->sum[leader] < 0) return;
            float *keys = sums + line->sum[leader] * 2 * stems;
            const long spot = line->spot[line->stem[leader]];
            Sum of_stem{trees.of_key(keys, spot, key), trees.of_key(keys + stems, spot, key), false};
            for (long sequence = leader; sequence >= 0; sequence = line->next[sequence]) {
                for (long t = line->first[sequence]; t < line->first[sequence] + line->length[sequence]; t++) {
                    std::fill_n(trees.of_key(to_key, t, key), line->width, 0.0f);
                    std::fill_n(trees.of_key(to_value, t, key), line->width, 0.0f);
                }
                for_queries(trees, sequence, key, [&](const Queries &block) {
                    differentiate(block, turned, turned_values, slopes, of_stem, desk);
                });
            }
        });
        me.share(parts, parts, [&](long part, long) {
            const long sequence = part / line->keys, key = part % line->keys, spot = line->spot[sequence];
            for (long t = 0; line->sums[sequence] && t < line->length[sequence]; t++)
                for (long sum = 0; sum < line->sums[sequence]; sum++) {
                    const float *keys = trees.of_key(sums + sum * 2 * stems, spot + t, key), *values = keys + stems;
                    trees.add(keys, to_key, line->first[sequence] + t, key);
                    trees.add(values, to_value, line->first[sequence] + t, key);
                }
        });
    });
}
}
