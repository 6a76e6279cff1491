// A decoding step: one token of every line through all layers of a model. The equations are in __init__.py.
//
// C++17 without libraries.

#include "attention.hpp"
#include "piece_attention.hpp"

namespace {

// Batches of lines that take the step together: one model, with keys and values of each batch. The lines of a batch
// follow those of the batches before it.
struct Batches {
    const StepModel *const *models;
    const StepLines *const *lines;
    long size;
    std::vector<long> lines_before{0}, pairs_before{0};  // lines, and pairs of a prompt and a head of keys, by batch

    Batches(const StepModel *const *models, const StepLines *const *lines, long size)
        : models(models), lines(lines), size(size) {
        for (long b = 0; b < size; b++) {
            lines_before.push_back(count() + lines[b]->count);
            pairs_before.push_back(pairs_before.back() + lines[b]->prompts * models[b]->keys);
        }
    }

    long count() const { return lines_before.back(); }
};

// The workspace of a step, in floats: a part that all threads use, and `each` floats per thread.
struct Plan {
    long heads, attended, active, adapted, states, each;

    explicit Plan(const Batches &batches) {
        const StepModel &model = *batches.models[0];
        const long count = batches.count(), padded = round_up(count, LANES), mixed = model.heads * model.width;
        heads = round_up(count * (model.heads + 2 * model.keys) * model.width, LANES);
        attended = round_up(count * mixed, LANES);
        long rank = 0, inner = model.inner, features = std::max<long>(model.hidden, mixed);
        for (long index = 0; index < model.count; index++) {
            const Layer &layer = model.layers[index];
            for (const Matrix *by : {&layer.heads, &layer.mixed, &layer.gate_and_up}) {
                rank = std::max<long>(rank, by->rank), features = std::max<long>(features, by->in);
            }
            inner = std::max<long>(inner, layer.down.in);
        }
        active = padded * round_up(inner, LANES);
        adapted = round_up(count * rank, LANES);
        states = padded * round_up(features, LANES);
        long most = 0;
        for (long b = 0; b < batches.size; b++) most = std::max(most, attention_workspace(model, *batches.lines[b]));
        each = states + most;
    }
    long total(long threads) const { return heads + attended + active + adapted + threads * each; }
};

// One step on a model and all lines. Activations are kept of a single batch only.
struct Step {
    const StepModel &model;
    const Batches &batches;
    const long count;
    const Angles angles;
    const ActivationBlocks *activations;
    float *x;
    float *heads, *attended, *active, *adapted;

    void layer(Worker &worker, long index, float *own, float *workspace) const {
        const Layer &layer = model.layers[index];
        const long n = count, row = (model.heads + 2 * model.keys) * model.width;
        const Records records(model, activations, index, batches.lines[0]->written - 1);
        const Input before{x, false, layer.norm, layer.epsilon, adapted};
        adapt(worker, n, before, layer.heads, own, adapted);
        product(worker, n, before, layer.heads, own,
                [&](long line, long column, long columns, Floats y) {
                    put(heads + line * row + column, columns, result(layer.heads, y));
                });
        worker.share(n, 2 * worker.threads, [&](long first, long end) {
            each_batch(index, first, end, batches.lines_before, [&](const Layer &own, const StepLines &lines, long b,
                                                                     long start, long stop) {
                const long before = batches.lines_before[b];
                const Angles own_angles{angles.cosine + before * model.width, angles.sine + before * model.width};
                rotate_and_store(model, own, lines, own_angles, heads + before * row, records, start, stop);
            });
        });
        const auto attend = layer.heads.half ? ::attend<Pair> : ::attend<float>;
        const long pairs = batches.pairs_before.back(), each = pairs < 2 * worker.threads ? 2 * worker.threads : 1;
        worker.share(pairs * each, pairs * each, [&](long part, long) {
            each_batch(index, part / each, part / each + 1, batches.pairs_before,
                       [&](const Layer &own, const StepLines &lines, long b, long pair, long) {
                           const long before = batches.lines_before[b];
                           float *into = attended + before * model.heads * model.width;
                           attend(model, own, lines, records, pair * each + part % each, each, heads + before * row, into,
                                  workspace);
                       });
        });
        const Input mixed{attended, false, nullptr, 0, adapted};
        adapt(worker, n, mixed, layer.mixed, own, adapted);
        accumulate_product(worker, n, mixed, layer.mixed, own, x, records.h);
        const Input gated{x, false, layer.gate_norm, layer.gate_epsilon, adapted};
        adapt(worker, n, gated, layer.gate_and_up, own, adapted);
        swiglu(worker, n, gated, layer.gate_and_up, layer.down, own, active, records);
        adapt_blocks(worker, n, active, layer.down);
        accumulate_product(worker, n, {active, true, nullptr, 0, nullptr}, layer.down, own, x, records.y);
    }

    // Calls work(layer with the keys and values of a batch, its lines, its number, first, end) for the batches that have
    // some of the things `first` to `end`, numbered within their batch. There are `before[b]` of them before batch b.
    template <class Work>
    void each_batch(long index, long first, long end, const std::vector<long> &before, const Work &work) const {
        long b = std::upper_bound(before.begin(), before.end(), first) - before.begin() - 1;
        for (; b < batches.size && before[b] < end; b++)
            work(batches.models[b]->layers[index], *batches.lines[b], b, std::max(0L, first - before[b]),
                 std::min(before[b + 1], end) - before[b]);
    }

    void last_norm(Worker &worker) const {
        worker.share(count, worker.threads, [&](long first, long end) {
            for (long line = first; line < end; line++) {
                float *state = x + line * model.hidden, r = root_mean_square(state, model.hidden, model.epsilon);
                normalise(state, model.hidden, model.norm, r);
            }
        });
    }
};

constexpr long PHASES = 10;  // at most of a layer

}  // namespace

extern "C" {

// Floats of the workspace of a step.
int64_t tutelage_step_workspace(const StepModel *const *models, const StepLines *const *lines, int64_t batches,
                                int64_t threads) {
    return Plan({models, lines, batches}).total(threads);
}

// x [n][d]: the embeddings of the tokens; the last hidden states are written over them. cosine, sine [n][w].
// models[b] has the weights of models[0], and the keys and values of batch b. `activations`, of one batch, may be null.
// `workspace` has the size that tutelage_step_workspace returns.
void tutelage_step(const ThreadPool *pool, const StepModel *const *models, const StepLines *const *lines,
                   int64_t batches, const ActivationBlocks *activations, float *x, const float *cosine,
                   const float *sine, float *workspace) {
    const Batches all{models, lines, batches};
    const StepModel *model = models[0];
    const Plan plan(all);
    float *heads = workspace, *attended = heads + plan.heads, *active = attended + plan.attended;
    float *adapted = active + plan.active, *workspaces = adapted + plan.adapted;
    const Step step{*model, all, all.count(), {cosine, sine}, activations, x, heads, attended, active, adapted};
    run_phases(*pool, model->count * PHASES + 1, [&](Worker &worker) {
        float *own = workspaces + worker.index * plan.each;
        for (long index = 0; index < model->count; index++) step.layer(worker, index, own, own + plan.states);
        step.last_norm(worker);
    });
}

// Floats of one thread's workspace of the attention of pieces.
int64_t tutelage_piece_workspace(const StepModel *const *models, const StepLines *const *lines, int64_t batches,
                                 const int64_t *ends) {
    long most = 0;
    for (long b = 0; b < batches; b++) {
        StepLines own = *lines[b];
        own.written += ends[b] - (b ? ends[b - 1] : 0);
        most = std::max(most, attention_workspace(*models[b], own));
    }
    return most;
}

// The attention of layer `index` for pieces of several lines, each of a batch of its own, into out [N][H][w]. The tokens
// ends[b - 1] to ends[b] of query [N][H][w], key and value [N][K][w] are the next ones of line b; keys and values are
// stored. `workspaces` has the workspace of every thread.
void tutelage_piece_attention(const ThreadPool *pool, const StepModel *const *models, const StepLines *const *lines,
                              int64_t batches, int64_t index, const int64_t *ends, const float *query, const float *key,
                              const float *value, float *out, float *workspaces) {
    const StepModel &model = *models[0];
    const long floats = tutelage_piece_workspace(models, lines, batches, ends);
    run_phases(*pool, 2, [&](Worker &worker) {
        const auto piece = [&](long b, const auto &work) {
            const long start = b ? ends[b - 1] : 0;
            work(models[b]->layers[index], *lines[b], start, ends[b] - start);
        };
        worker.share(batches, batches, [&](long b, long) {
            piece(b, [&](const Layer &layer, const StepLines &own, long start, long tokens) {
                const long at = start * model.keys * model.width;
                store_tokens(model, layer, own, tokens, key + at, value + at);
            });
        });
        const long pairs = batches * model.keys, each = pairs < 2 * worker.threads ? 2 * worker.threads : 1;
        worker.share(pairs * each, pairs * each, [&](long part, long) {
            const long pair = part / each;
            piece(pair / model.keys, [&](const Layer &layer, const StepLines &own, long start, long tokens) {
                const auto attend = layer.heads.half ? attend_piece<Pair> : attend_piece<float>;
                const long at = start * model.heads * model.width;
                attend(model, layer, own, tokens, pair % model.keys, part % each, each, query + at, out + at,
                       workspaces + worker.index * floats);
            });
        });
    });
}

// y [n][out] = x [n][in] W^T + b. `workspace` has [ceil(n / 16)][in padded to 16][16] floats for each thread.
void tutelage_product(const ThreadPool *pool, const Matrix *by, int64_t lines, const float *x, float *y,
                      float *workspace) {
    run_phases(*pool, 1, [&](Worker &worker) {
        float *own = workspace + worker.index * blocks_of(lines) * round_up(by->in, LANES) * LANES;
        product(worker, lines, {x, false, nullptr, 0, nullptr}, *by, own,
                [&](long line, long column, long columns, Floats part) {
                    put(y + line * by->out + column, columns, part);
                });
    });
}

// Copies W [out][in] into panels that begin `step` floats apart, with zeros after the last row.
void tutelage_pack(const ThreadPool *pool, const float *weight, int64_t out, int64_t in, float *panels, int64_t step) {
    run_phases(*pool, 1, [&](Worker &worker) {
        worker.share(blocks_of(out), 8 * worker.threads, [&](long first, long end) {
            for (long panel = first; panel < end; panel++) {
                float *to = panels + panel * step;
                const long rows = std::min<long>(LANES, out - panel * LANES);
                const float *from = weight + panel * LANES * in;
                for (long k = 0; k < in; k++)
                    for (long r = 0; r < LANES; r++) to[k * LANES + r] = r < rows ? from[r * in + k] : 0.0f;
            }
        });
    });
}

// y = exp(x), for the tests. The size is a multiple of 16.
void tutelage_exponential(const float *x, float *y, int64_t size) {
    for (long i = 0; i < size; i += LANES) store(y + i, exponential(load(x + i)));
}
}
