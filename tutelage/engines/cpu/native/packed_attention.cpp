// Attention of a packed sequence, and its gradients, in float32 and in bfloat16. The equations are in
// packed_attention.hpp.

#include "half_attention.hpp"
#include "packed_attention.hpp"

namespace {

// Calls work(queries, workspace) for all blocks, on all threads.
template <class Work>
void share_queries(Worker &worker, const PackedView &view, long block, float *workspaces, const Work &work) {
    const PackedSequence &packed = view.packed;
    const Workspace workspace(packed, workspaces + worker.index * Workspace::floats(packed));
    const long parts = packed.sequences * packed.keys;
    worker.share(parts, parts, [&](long part, long) {
        for_queries(view, part / packed.keys, part % packed.keys, block,
                    [&](const Queries &queries) { work(queries, workspace); });
    });
}

}  // namespace

extern "C" {

// Floats of one thread's workspace, without the accumulators.
int64_t tutelage_packed_attention_workspace(const PackedSequence *packed) { return Workspace::floats(*packed); }

// out [N][H][w] and the log-sum-exp of the scores, lse [N][H]. `transposed` has room for the keys, [columns][K][w], and
// `workspaces` for the workspace of every thread.
void tutelage_packed_attention(const ThreadPool *pool, const PackedSequence *packed, float *out, float *lse,
                               float *transposed, float *workspaces) {
    const PackedView view{*packed};
    run_phases(*pool, 2, [&](Worker &worker) {
        transpose(worker, view, packed->key, transposed);
        share_queries(worker, view, STRIP, workspaces, [&](const Queries &block, const Workspace &workspace) {
            attend(FloatQueries(block), transposed, out, lse, workspace);
        });
    });
}

// The gradients of queries [N][H][w], keys and values [M][K][w], from `grad` [N][H][w], the gradient of `out`.
// `transposed` has room for keys and values, and `accumulated` for the accumulators (see `collect_gradients`).
void tutelage_packed_attention_gradients(const ThreadPool *pool, const PackedSequence *packed, const float *out,
                                         const float *lse, const float *grad, float *to_query, float *to_key,
                                         float *to_value, float *transposed, float *accumulated,
                                         float *workspaces) {
    const PackedView view{*packed};
    const Gradients gradients{out, lse, grad, to_query, to_key, to_value};
    float *transposed_values = transposed + packed->all_columns * packed->keys * packed->width;
    run_phases(*pool, 4, [&](Worker &worker) {
        const Workspace workspace(*packed, workspaces + worker.index * Workspace::floats(*packed));
        transpose(worker, view, packed->key, transposed);
        transpose(worker, view, packed->value, transposed_values);
        collect_gradients(worker, view, to_key, to_value, accumulated,
                          [&](const Queries &block, const PrefixGradients &of_prefix) {
                              differentiate(FloatQueries(block), transposed, transposed_values, gradients, of_prefix,
                                            workspace);
                          });
    });
}

// The same in bfloat16. `copies` has room for keys and values in pairs, 2 [columns][K][w] numbers.
void tutelage_half_attention(const ThreadPool *pool, const PackedSequence *packed, Half *out, float *lse, Pair *copies,
                             float *workspaces) {
    const PackedView view{*packed};
    Pair *values = copies + packed->all_columns * packed->keys * packed->width / 2;
    run_phases(*pool, 3, [&](Worker &worker) {
        pair_features(worker, view, halves(packed->key), copies);
        pair_tokens(worker, view, halves(packed->value), values);
        share_queries(worker, view, BLOCK, workspaces, [&](const Queries &block, const Workspace &workspace) {
            attend(HalfQueries(block), copies, values, out, lse, workspace);
        });
    });
}

// The same in bfloat16, without `out`; the gradients of keys and values are float32. `copies` has room for keys and
// values in pairs of features and keys in pairs of tokens, 3 [columns][K][w] numbers.
void tutelage_half_attention_gradients(const ThreadPool *pool, const PackedSequence *packed, const float *lse,
                                       const Half *grad, Half *to_query, float *to_key, float *to_value, Pair *copies,
                                       float *accumulated, float *workspaces) {
    const PackedView view{*packed};
    const long size = packed->all_columns * packed->keys * packed->width / 2;
    Pair *values = copies + size, *token_keys = values + size;
    const HalfGradients gradients{grad, lse, copies, values, token_keys, to_query, to_key, to_value};
    run_phases(*pool, 5, [&](Worker &worker) {
        const Workspace workspace(*packed, workspaces + worker.index * Workspace::floats(*packed));
        pair_features(worker, view, halves(packed->key), copies);
        pair_features(worker, view, halves(packed->value), values);
        pair_tokens(worker, view, halves(packed->key), token_keys);
        collect_gradients(worker, view, to_key, to_value, accumulated,
                          [&](const Queries &block, const PrefixGradients &of_prefix) {
                              differentiate(HalfQueries(block), gradients, of_prefix, workspace);
                          });
    });
}
}
