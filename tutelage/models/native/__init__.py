"""A decoding step in C++: one call for one token of every line, from its embedding to its last hidden state.

    n = norm(x)        q, k, v = rotated(W_q n), rotated(W_k n), W_v n        (with norms of heads where there are some)
    a = softmax(scale · [q Kᵀ | q kᵀ]) [V ; v]                                (K, V of the prompt, k, v of the answer)
    h = x + W_o a      n = norm(h)      g, u = W_g n, W_u n                   x ← h + W_d (silu(g) · u)

It is what `LeanStep` computes, on the keys and values that `SharedPrompts` holds and with the adapters folded in. What
it saves are the forty-five small operations of a layer, each of which waits for Python, for torch and for a cache that
the weights have emptied; and it reads the weights as fast as the memory gives them.

`step.cpp` is compiled when it is first needed, for the very processor, and kept (`build`). It knows nothing of torch
but the threads of its pool (`bindings`). `weights` lays a model out for it, and `step` hands over tokens and pointers.
"""
