// The sizes of the structs that Python fills in, by which Python checks that both sides declare them alike.

#include "structs.hpp"

#include <cstring>

extern "C" {

// Size and alignment in bytes of the struct with that name; returns 0 where there is none.
int64_t tutelage_struct_layout(const char *name, int64_t *size, int64_t *alignment) {
#define LAYOUT(Struct) \
    if (!std::strcmp(name, #Struct)) return *size = sizeof(Struct), *alignment = alignof(Struct), 1
    LAYOUT(ThreadPool);
    LAYOUT(Matrix);
    LAYOUT(Layer);
    LAYOUT(StepModel);
    LAYOUT(StepLines);
    LAYOUT(ActivationBlocks);
    LAYOUT(FloatProduct);
    LAYOUT(PackedSequence);
#undef LAYOUT
    return 0;
}
}
