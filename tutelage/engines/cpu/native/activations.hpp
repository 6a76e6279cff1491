// Writes the activations of the layers to the blocks in which they are kept.
#pragma once

#include "half.hpp"
#include "kernel.hpp"
#include "structs.hpp"

namespace {

// One kind of activation of one layer: `width` numbers for each line, after `before` bytes of the kinds before it. There
// are no blocks where nothing is kept.
struct Record {
    const ActivationBlocks *target;
    char *const *blocks;
    long token, before, width;
    bool half;

    bool keeps(long line) const { return blocks && target->group[line] >= 0; }
    long bytes() const { return width * (half ? sizeof(Half) : sizeof(float)); }
    template <class Number>
    Number *of(long line) const {
        const long group = target->group[line];
        Number *first = reinterpret_cast<Number *>(blocks[group] + before * target->places[group]);
        return first + width * (target->first[line] + token);
    }
    void put(long line, long column, long columns, Floats y) const {
        if (!keeps(line)) return;
        if (half) ::put(of<Half>(line) + column, columns, y);
        else ::put(of<float>(line) + column, columns, y);
    }
    void put(long line, const float *all) const {
        for (long i = 0; i < width && keeps(line); i += LANES) {
            const long columns = std::min(LANES, width - i);
            put(line, i, columns, load_some(all + i, columns));
        }
    }
};

// The kinds of activations of one layer, in the order of a block (`LayerActivations` in forward_pass.py has the same). The
// operands and results of products are in bfloat16 where the layer's matrices are.
struct Records {
    Record query, key, value, attended, lse, h, gate, up, y;

    Records(const StepModel &model, const ActivationBlocks *target, long layer, long token) {
        const long mixed = model.heads * model.width, keys = model.keys * model.width;
        Record *const kinds[] = {&query, &key, &value, &attended, &lse, &h, &gate, &up, &y};
        const long inner = model.inner, d = model.hidden;
        const long widths[] = {mixed, keys, keys, mixed, model.heads, d, inner, inner, d};
        const bool half = model.layers[layer].heads.half;
        long before = 0;
        for (int kind = 0; kind < 9; kind++) {
            char *const *blocks = target ? target->blocks + layer * target->groups : nullptr;
            Record *const own = kinds[kind];
            *own = {target, blocks, token, before, widths[kind], half && own != &lse && own != &h && own != &y};
            before += own->bytes();
        }
    }
};

}  // namespace
