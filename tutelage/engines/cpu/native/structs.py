"""ctypes definitions of `structs.hpp`. `bindings.library` compares their sizes with the compiled ones.

Does not import torch, since wheels are checked without it.
"""

from ctypes import POINTER, Structure, c_float, c_int64, c_void_p


class ThreadPool(Structure):
    """The threads of torch's OpenMP runtime: two functions of that runtime, or null, and the number of threads."""

    _fields_ = [("parallel", c_void_p), ("thread", c_void_p), ("threads", c_int64)]


class Matrix(Structure):
    """A linear layer: W [out, in] as panels of sixteen rows, in bfloat16 if `half`, and b [out] or null.

    With an adapter it is [W | s B], whose last `rank` columns are multiplied with A x; `lora_a` are the panels of A, or
    null. If `alternating`, panels of the first and second half of the rows of W alternate. `beyond` is 0 here; C++ sets
    it.
    """

    _fields_ = [
        *((name, c_void_p) for name in ("panels", "bias", "lora_a")),
        *((name, c_int64) for name in ("out", "in_", "rank", "beyond", "half", "alternating")),
    ]


class Layer(Structure):
    """The weights of a transformer layer, and the addresses of its keys and values."""

    _fields_ = [
        *((name, Matrix) for name in ("heads", "mixed", "gate_and_up", "down")),
        *((name, c_void_p) for name in ("norm", "query_norm", "key_norm", "gate_norm")),
        *((name, c_float) for name in ("epsilon", "query_epsilon", "key_epsilon", "gate_epsilon", "scale")),
        *((name, c_void_p) for name in ("prompt_keys", "prompt_values", "keys", "values")),
    ]


class StepModel(Structure):
    """All layers of a model, equal in shape, and the last norm."""

    _fields_ = [
        ("layers", POINTER(Layer)),
        *((name, c_int64) for name in ("count", "hidden", "heads", "keys", "width", "inner")),
        ("norm", c_void_p),
        ("epsilon", c_float),
    ]


class StepLines(Structure):
    """The lines of a decoding step, and the strides of the keys and values."""

    _fields_ = [
        *((name, c_int64) for name in ("count", "prompts", "longest", "written")),
        *((name, c_void_p) for name in ("first", "lengths", "slots")),
        ("prompt_steps", c_int64 * 2),
        ("answer_steps", c_int64 * 3),
    ]


class ActivationBlocks(Structure):
    """The addresses to which a decoding step writes the activations of layers (see `activation_cache.Recording`)."""

    _fields_ = [
        ("blocks", POINTER(c_void_p)),
        ("groups", c_int64),
        ("places", POINTER(c_int64)),
        ("group", c_void_p),
        ("first", c_void_p),
    ]


class FloatProduct(Structure):
    """A product of matrices in float32, with the steps between their rows and columns."""

    _fields_ = [
        *((name, c_int64) for name in ("rows", "columns", "depth")),
        *(("a", c_void_p), ("a_row", c_int64), ("a_step", c_int64)),
        *(("b", c_void_p), ("b_row", c_int64), ("b_step", c_int64)),
        *(("bias", c_void_p), ("c", c_void_p), ("c_row", c_int64), ("accumulate", c_int64)),
    ]


class PackedSequence(Structure):
    """The layout of a packed sequence, and the queries, keys and values of its attention."""

    _fields_ = [
        *((name, c_int64) for name in ("heads", "keys", "width", "sequences")),
        *((name, c_int64) for name in ("longest", "all_columns", "prefix_tokens")),
        *((name, c_void_p) for name in ("first", "length", "skipped", "queries", "prefix", "columns")),
        *((name, c_void_p) for name in ("offset", "accumulator", "next_suffix", "accumulators")),
        ("scale", c_float),
        *((name, c_void_p) for name in ("query", "key", "value")),
    ]


STRUCTS: tuple[type[Structure], ...] = (
    ThreadPool,
    Matrix,
    Layer,
    StepModel,
    StepLines,
    ActivationBlocks,
    FloatProduct,
    PackedSequence,
)
"""All structs shared by Python and C++."""
