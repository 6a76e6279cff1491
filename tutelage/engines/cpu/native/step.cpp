// One token of every line through all layers of a model, in float32. The equations are in __init__.py.
//
// C++17 without libraries: what is shared with others is in the headers beside this file.

#include "attention.hpp"

namespace {

// The memory of a step, in floats: what the threads share, and then what each has for itself.
struct Plan {
    long heads, attended, active, states, each;

    Plan(const Model &model, const Lines &lines) {
        const long padded = upward(lines.count, LANES), mixed = model.heads * model.width;
        heads = upward(lines.count * (model.heads + 2 * model.keys) * model.width, LANES);
        attended = upward(lines.count * mixed, LANES);
        active = padded * model.inner;
        states = padded * std::max<long>(model.hidden, mixed);
        each = states + attention_room(model, lines);
    }
    long total(long threads) const { return heads + attended + active + threads * each; }
};

struct Step {
    const Model &model;
    const Lines &lines;
    const Angles angles;
    const Kept *kept;
    float *x;
    float *heads, *attended, *active;

    void layer(Worker &me, long index, float *own, float *room) const {
        const Layer &layer = model.layers[index];
        const long n = lines.count, row = (model.heads + 2 * model.keys) * model.width;
        const Records records(model, kept, index, lines.written - 1);
        product(me, n, {x, false, layer.norm, layer.epsilon}, layer.heads, own,
                [&](long line, long column, long columns, Floats y) { put(heads + line * row + column, columns, y); });
        turned(me, model, layer, lines, angles, heads, records);
        attention(me, model, layer, lines, records, heads, attended, room);
        onto(me, n, {attended, false, nullptr, 0}, layer.mixed, own, x, records.h);
        gated(me, n, {x, false, layer.gate_norm, layer.gate_epsilon}, layer.gate_and_up, own, active, records);
        onto(me, n, {active, true, nullptr, 0}, layer.down, own, x, records.y);
    }

    void last_norm(Worker &me) const {
        me.share(lines.count, me.threads, [&](long first, long behind) {
            for (long line = first; line < behind; line++) {
                float *state = x + line * model.hidden, r = root_mean_square(state, model.hidden, model.epsilon);
                for (long i = 0; i < model.hidden; i++) state[i] *= r * model.norm[i];
            }
        });
    }
};

constexpr long PHASES = 6;  // of a layer

}  // namespace

extern "C" {

int64_t tutelage_room(const Model *model, const Lines *lines, int64_t threads) {
    return Plan(*model, *lines).total(threads);
}

// x [n][d] becomes the last hidden states. cos, sin [n][w]. `kept` may be null. `room` as said above.
void tutelage_step(const Team *team, const Model *model, const Lines *lines, const Kept *kept, float *x,
                   const float *cosine, const float *sine, float *room) {
    const Plan plan(*model, *lines);
    float *heads = room, *attended = heads + plan.heads, *active = attended + plan.attended;
    float *rooms = active + plan.active;
    const Step step{*model, *lines, {cosine, sine}, kept, x, heads, attended, active};
    together(*team, model->count * PHASES + 1, [&](Worker &me) {
        float *own = rooms + me.index * plan.each;
        for (long index = 0; index < model->count; index++) step.layer(me, index, own, own + plan.states);
        step.last_norm(me);
    });
}

// y [n][out] = x [n][in] W^T + b, with room for [ceil(n / 16)][in][16] for each thread.
void tutelage_product(const Team *team, const Matrix *by, int64_t lines, const float *x, float *y, float *room) {
    together(*team, 1, [&](Worker &me) {
        float *own = room + me.index * upward(lines, LANES) * by->in;
        product(me, lines, {x, false, nullptr, 0}, *by, own, [&](long line, long column, long columns, Floats part) {
            put(y + line * by->out + column, columns, part);
        });
    });
}

// W [out][in] into panels, `step` floats from one to the next, zeros behind the last row.
void tutelage_pack(const Team *team, const float *weight, int64_t out, int64_t in, float *panels, int64_t step) {
    together(*team, 1, [&](Worker &me) {
        me.share(blocks_of(out), 8 * me.threads, [&](long first, long behind) {
            for (long panel = first; panel < behind; panel++) {
                float *to = panels + panel * step;
                const long rows = std::min<long>(LANES, out - panel * LANES);
                const float *from = weight + panel * LANES * in;
                for (long k = 0; k < in; k++)
                    for (long r = 0; r < LANES; r++) to[k * LANES + r] = r < rows ? from[r * in + k] : 0.0f;
            }
        });
    });
}

void tutelage_exponential(const float *x, float *y, int64_t size) {  // for the tests; size in multiples of 16
    for (long i = 0; i < size; i += LANES) store(y + i, exponential(load(x + i)));
}
}
