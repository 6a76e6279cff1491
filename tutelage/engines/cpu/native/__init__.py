"""Kernels in C++ for CPUs: a decoding step, the attention of packed sequences, element-wise kernels.

**A decoding step** is one call per token of every line, from its embedding to its last hidden state.

    n = norm(x)        q, k, v = rotated(W_q n), rotated(W_k n), W_v n        (normalised per head in some models)
    a = softmax(scale · [q Kᵀ | q kᵀ]) [V ; v]                                (K, V: prompt; k, v: completion)
    h = x + W_o a      n = norm(h)      g, u = W_g n, W_u n                   x ← h + W_d (silu(g) · u)

It is equivalent to `FusedStep` on the keys and values in a `PromptCache`. It replaces forty-five small operations per
layer, each with overhead from Python, torch and evicted caches, and reads the weights at memory bandwidth.
`compiled_step` lays a model out for `step.cpp` and passes tokens and pointers. Weights are float32 or bfloat16; with
bfloat16, inputs of products are rounded to it and everything else is float32 (`half_products.hpp`). Adapters are
columns beside the weights, [W | s B] [x; A x] (see `fused.linears`).

**The attention of a packed sequence** (see `tutelage.engines.packing`) is one softmax for every query over its shared
prefix and its own sequence (`packed_attention.hpp`); gradients are included. `attention_kernels` passes tensors.

**Element-wise kernels** compute the gradients of a fused layer between its matrix products, for float32 and bfloat16
products (`elementwise`).

Kernels are compiled on first use for the CPU of the machine and cached (`build`). Structs declared in both languages
are compared when the library is loaded (`bindings`). The kernels depend on torch only for its thread pool.
"""
