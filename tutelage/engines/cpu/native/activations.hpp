// Writes the activations of the layers to the blocks in which they are kept.
#pragma once

#include "structs.hpp"
#include "kernel.hpp"

namespace {

// One kind of activation of one layer: `width` numbers for each line, after `before` numbers of the kinds before it.
// There are no blocks where nothing is kept.
struct Record {
    const ActivationBlocks *target;
    float *const *blocks;
    long token, before, width;

    explicit operator bool() const { return blocks; }
    float *of(long line) const {
        const long group = target->group[line];
        return blocks[group] + before * target->places[group] + width * (target->first[line] + token);
    }
    void put(long line, long column, long columns, Floats y) const {
        if (blocks) ::put(of(line) + column, columns, y);
    }
    void put(long line, const float *all) const {
        if (blocks) std::copy_n(all, width, of(line));
    }
};

// The kinds of activations of one layer, in the order of a block (`LayerActivations` in layer_cache.py has the same).
struct Records {
    Record query, key, value, attended, lse, h, gate, up, y;

    Records(const Model &model, const ActivationBlocks *target, long layer, long token) {
        const long mixed = model.heads * model.width, keys = model.keys * model.width;
        Record *const kinds[] = {&query, &key, &value, &attended, &lse, &h, &gate, &up, &y};
        const long inner = model.inner, d = model.hidden;
        const long widths[] = {mixed, keys, keys, mixed, model.heads, d, inner, inner, d};
        long before = 0;
        for (int kind = 0; kind < 9; kind++) {
            float *const *blocks = target ? target->blocks + layer * target->groups : nullptr;
            *kinds[kind] = {target, blocks, token, before, widths[kind]};
            before += widths[kind];
        }
    }
};

}  // namespace
