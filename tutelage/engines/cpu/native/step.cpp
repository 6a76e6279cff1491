// A decoding step: one token of every line through all layers of a model. The equations are in __init__.py.
//
// C++17 without libraries.

#include "attention.hpp"

namespace {

// Batches of lines that take the step together: one model, with keys and values of each batch. The lines of a batch
// follow those of the batches before it.
struct Batches {
    const StepModel *const *models;
    const StepLines *const *lines;
    long size;

    long count() const {
        long total = 0;
        for (long b = 0; b < size; b++) total += lines[b]->count;
        return total;
    }
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
    const Batches batches;
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
        each_batch(index, [&](const Layer &own_layer, const StepLines &lines, long first) {
            const Angles own_angles{angles.cosine + first * model.width, angles.sine + first * model.width};
            rotate_and_store(worker, model, own_layer, lines, own_angles, heads + first * row, records);
        });
        each_batch(index, [&](const Layer &own_layer, const StepLines &lines, long first) {
            float *into = attended + first * model.heads * model.width;
            const auto attend = layer.heads.half ? attention<Pair> : attention<float>;
            attend(worker, model, own_layer, lines, records, heads + first * row, into, workspace);
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

    // Calls work(layer with the keys and values of a batch, its lines, the number of lines before it).
    template <class Work>
    void each_batch(long index, const Work &work) const {
        long first = 0;
        for (long b = 0; b < batches.size; first += batches.lines[b++]->count)
            work(batches.models[b]->layers[index], *batches.lines[b], first);
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

constexpr long PHASES = 8, BATCH_PHASES = 2;  // at most of a layer: of all lines together, and of each batch

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
    run_phases(*pool, model->count * (PHASES + batches * BATCH_PHASES) + 1, [&](Worker &worker) {
        float *own = workspaces + worker.index * plan.each;
        for (long index = 0; index < model->count; index++) step.layer(worker, index, own, own + plan.states);
        step.last_norm(worker);
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
