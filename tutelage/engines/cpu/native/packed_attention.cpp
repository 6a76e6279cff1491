// Attention of a packed sequence, and its gradients. The equations are in packed_attention.hpp.

#include "packed_attention.hpp"

extern "C" {

// Floats of one thread's workspace, without the accumulators.
int64_t tutelage_packed_attention_workspace(const PackedSequence *packed) { return Workspace::floats(*packed); }

// out [N][H][w] and the log-sum-exp of the scores, lse [N][H]. `transposed` has room for the keys, [columns][K][w], and
// `workspaces` for the workspace of every thread.
void tutelage_packed_attention(const ThreadPool *pool, const PackedSequence *packed, float *out, float *lse,
                               float *transposed, float *workspaces) {
    const PackedView view{*packed};
    run_phases(*pool, 2, [&](Worker &worker) {
        const Workspace workspace(*packed, workspaces + worker.index * Workspace::floats(*packed));
        view.transpose(worker, packed->key, transposed);
        const long parts = packed->sequences * packed->keys;
        worker.share(parts, parts, [&](long part, long) {
            for_queries(view, part / packed->keys, part % packed->keys,
                        [&](const Queries &block) { attend(block, transposed, out, lse, workspace); });
        });
    });
}

// The gradients of queries [N][H][w], keys and values [N][K][w], from `grad` [N][H][w], the gradient of `out`.
// `transposed` has room for keys and values, and `accumulated` for [most accumulators of a prefix][2][prefix
// tokens][K][w].
void tutelage_packed_attention_gradients(const ThreadPool *pool, const PackedSequence *packed, const float *out,
                                         const float *lse, const float *grad, float *to_query, float *to_key,
                                         float *to_value, float *transposed, float *accumulated,
                                         float *workspaces) {
    const PackedView view{*packed};
    const Gradients gradients{out, lse, grad, to_query, to_key, to_value};
    const long each = packed->keys * packed->width, prefixes = packed->prefix_tokens * each;
    float *transposed_values = transposed + packed->all_columns * each;
    run_phases(*pool, 4, [&](Worker &worker) {
        const Workspace workspace(*packed, workspaces + worker.index * Workspace::floats(*packed));
        view.transpose(worker, packed->key, transposed);
        view.transpose(worker, packed->value, transposed_values);
        const long parts = packed->sequences * packed->keys;
        worker.share(parts, parts, [&](long part, long) {
            const long leader = part / packed->keys, key = part % packed->keys;
            if (packed->accumulator[leader] < 0) return;
            float *keys = accumulated + packed->accumulator[leader] * 2 * prefixes;
            const long offset = packed->offset[packed->prefix[leader]];
            PrefixGradients prefix_gradients{view.of_key(keys, offset, key), view.of_key(keys + prefixes, offset, key),
                                             false};
            for (long sequence = leader; sequence >= 0; sequence = packed->next_suffix[sequence]) {
                for (long t = packed->first[sequence]; t < packed->first[sequence] + packed->length[sequence]; t++) {
                    std::fill_n(view.of_key(to_key, t, key), packed->width, 0.0f);
                    std::fill_n(view.of_key(to_value, t, key), packed->width, 0.0f);
                }
                for_queries(view, sequence, key, [&](const Queries &block) {
                    differentiate(block, transposed, transposed_values, gradients, prefix_gradients, workspace);
                });
            }
        });
        worker.share(parts, parts, [&](long part, long) {
            const long sequence = part / packed->keys, key = part % packed->keys, offset = packed->offset[sequence];
            for (long t = 0; packed->accumulators[sequence] && t < packed->length[sequence]; t++)
                for (long n = 0; n < packed->accumulators[sequence]; n++) {
                    const float *keys = view.of_key(accumulated + n * 2 * prefixes, offset + t, key);
                    const float *values = keys + prefixes;
                    view.add(keys, to_key, packed->first[sequence] + t, key);
                    view.add(values, to_value, packed->first[sequence] + t, key);
                }
        });
    });
}
}
