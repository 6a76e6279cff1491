"""Kernels in C++ for CPUs: a decoding step, the attention of packed sequences, element-wise kernels.

**A decoding step** is one call for one token of every line, from its embedding to its last hidden state.

    n = norm(x)        q, k, v = rotated(W_q n), rotated(W_k n), W_v n        (normalised per head in some models)
    a = softmax(scale · [q Kᵀ | q kᵀ]) [V ; v]                                (K, V: prompt; k, v: completion)
    h = x + W_o a      n = norm(h)      g, u = W_g n, W_u n                   x ← h + W_d (silu(g) · u)

It computes what `FusedStep` computes, on the keys and values in a `PromptCache`. It saves the forty-five small
operations of a layer, each of which waits for Python, for torch and for a cache that the weights have evicted, and it
reads the weights as fast as the memory delivers them. `compiled_step` lays a model out for `step.cpp`, and passes
tokens and pointers. Weights are float32 or bfloat16; in bfloat16 the inputs of products are rounded to it, and
everything else is float32 (`half_products.hpp`). Adapters are columns beside the weights, [W | s B] [x; A x] (see
`fused.linears`).

**The attention of a packed sequence** (see `tutelage.engines.packing`) is one softmax for every query over its shared
prefix and its own sequence (`packed_attention.hpp`); its gradients are computed too. `attention_kernels`
passes tensors.

**Element-wise kernels** compute the gradients of a fused layer between its matrix products, in float32 and where the
products are in bfloat16 (`elementwise`).

All kernels are compiled when they are first needed, for the CPU of the machine, and kept (`build`). The structs
that both languages declare are compared when the library is loaded (`bindings`). Of torch the kernels use only the
threads of its pool.
"""
