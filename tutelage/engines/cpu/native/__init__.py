"""What is computed in C++ of our own, on a processor in float32: a decoding step, the attention of trees, and passes.

**A decoding step** is one call for one token of every line, from its embedding to its last hidden state.

    n = norm(x)        q, k, v = rotated(W_q n), rotated(W_k n), W_v n        (with norms of heads where there are some)
    a = softmax(scale · [q Kᵀ | q kᵀ]) [V ; v]                                (K, V of the prompt, k, v of the answer)
    h = x + W_o a      n = norm(h)      g, u = W_g n, W_u n                   x ← h + W_d (silu(g) · u)

It is what `LeanStep` computes, on the keys and values that `SharedPrompts` holds and with the adapters folded in. What
it saves are the forty-five small operations of a layer, each of which waits for Python, for torch and for a cache that
the weights have emptied; and it reads the weights as fast as the memory gives them.

`weights` lays a model out for `step.cpp`, and `step` hands over tokens and pointers.

**The attention of a line of trees** (see `packing`), with its gradients, is one softmax of every query over its stem
and its own sequence (`trees.hpp`). `trees` hands over tensors.

**Passes** are what the gradients of a lean layer do between products (`passes`).

All are compiled when they are first needed, for the very processor, and kept (`build`). They know nothing of torch but
the threads of its pool (`bindings`).
"""
