// The gated activation p = silu(g) u, and its gradients.
#pragma once

#include "vectors.hpp"

namespace {

// p, and the gradients of g and u from `grad`, that of p.
struct GateGradients {
    Floats product, to_gate, to_up;

    INLINE GateGradients(Floats gate, Floats up, Floats grad) {
        const Floats sigmoid = 1.0f / (1.0f + exponential(-gate)), through = gate * sigmoid;
        product = through * up, to_up = grad * through;
        to_gate = grad * up * (sigmoid + through * (1.0f - sigmoid));
    }
};

}  // namespace
