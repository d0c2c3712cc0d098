"""What each kernel may take: the one place where it is stated.

A budget of registers is the most that leaves as many blocks of 256 threads resident: a
multiprocessor has 65,536 registers, so up to 32 leave eight blocks, 40 six, 48 five, 64 four, 80
three, 128 two and 255 one. Versions of nvcc may differ within it.
"""

import re
from typing import NamedTuple


class Budget(NamedTuple):
    registers: int  # of a thread, at most
    load: int | None = None  # bits of the widest loads, where the code claims them
    divisions: int | None = None  # slow divisions in the code, at most


SURVEY = "CountUpdates"  # counts updates for statistics, seldom; it may spill

_FUNCTOR = re.compile(r"^(?:groups|elements)_kernel<(\w+)(?:<(\w+)(?:<(.*))?)?")
_RULE = re.compile(r"(\w+)::(?:\w*Step\b|EagerKahan)")


def family_of(name):
    """The name that instances of one template share: that of the kernel, or of what
    groups_kernel<> and elements_kernel<> run; updates also by rule, as "TensorUpdate, AdamW".
    """
    name = re.sub(r"\(anonymous namespace\)::", "", name.removeprefix("void ").replace("mpt::", ""))
    functor = _FUNCTOR.match(name)
    if functor is None:
        return re.match(r"\w+", name)[0]
    if functor[1] != "TensorTable" or not functor[2].endswith("Update"):
        return functor[1]
    rule = _RULE.search(name)
    return f"{functor[2]}, {rule[1]}" if rule else functor[2]


BUDGETS = {
    "AddRmsNormForward": Budget(40),
    "CachedAttention": Budget(80),
    "CastToFp8": Budget(48),
    "ChannelFactors": Budget(32),
    "ClearMaximum": Budget(32),
    "Combine": Budget(32),
    "CompensatedUpdate, AdamW": Budget(80, load=128),
    "CompensatedUpdate, AdditiveTwin": Budget(128, load=128),
    "CompensatedUpdate, Lion": Budget(64, load=128),
    "CompensatedUpdate, MPlusAdam": Budget(128, load=128),
    "CompensatedUpdate, Madam": Budget(64, load=128),
    "CompensatedUpdate, Muon": Budget(64, load=128),
    "ComputeClip": Budget(64),
    "CopyWeights": Budget(40),
    "CrossEntropy": Budget(40),
    "CurrentScale": Budget(32),
    "Divide": Budget(32),
    "Divisor": Budget(48),
    "EmbeddingBackward": Budget(48),
    "EmbeddingBackwardSlices": Budget(40, load=128),
    "EmbeddingForward": Budget(32),
    "EmbeddingForwardPacks": Budget(32, load=128),
    "ExponentGradient": Budget(40),
    "FeedbackUpdate, AdamW": Budget(128, load=128),
    "FeedbackUpdate, AdditiveTwin": Budget(128, load=128),
    "FeedbackUpdate, MPlusAdam": Budget(128, load=128),
    "FindFirstUses": Budget(32),
    "FollowBlock": Budget(48),
    "FirstTensorScale": Budget(32),
    "GainGradient": Budget(32),
    "GatherAmax": Budget(40),
    "HeadNormBackward": Budget(96),
    "HeadNormForward": Budget(56),
    "KeptUpdate, AdamW": Budget(80, load=128),
    "KeptUpdate, AdditiveTwin": Budget(80, load=128),
    "KeptUpdate, Lion": Budget(64, load=128),
    "KeptUpdate, MPlusAdam": Budget(128, load=128),
    "KeptUpdate, Madam": Budget(64, load=128),
    "KeptUpdate, Muon": Budget(64, load=128),
    "LargestOf": Budget(32),
    "MatrixFactor": Budget(48),
    "MeanDirection": Budget(32),
    "MeanScale": Budget(48),
    "NextMaxima": Budget(80),
    "NoteScale": Budget(32),
    "ProjectColumnTiles": Budget(40),
    "ProjectRow": Budget(64),
    "ProjectedMoments": Budget(40),
    "RescaleBlock": Budget(40),
    "RescaleTensor": Budget(32),
    "RmsNormBackward": Budget(128),
    "RollSlot": Budget(32),
    "Rope": Budget(40),
    "RopePacks": Budget(48, load=128),
    "RoundPacksToBf16": Budget(32, load=128),
    "RoundToBf16": Budget(32),
    "RowAmax": Budget(32),
    "RowScaleMax": Budget(40),
    "RowScaleSum": Budget(40),
    "SquareSum": Budget(40),
    "SumColumnTiles": Budget(32),
    "SumLosses": Budget(32),
    "SumOfTiles": Budget(48),
    "SwigluBackward": Budget(32),
    "SwigluBackwardPacks": Budget(32, load=128, divisions=0),
    "SwigluForward": Budget(32),
    "SwigluForwardPacks": Budget(32, load=128, divisions=0),
    "TakeMaximum": Budget(32),
    "TensorTable": Budget(32),
    "TensorUpdate, AdamW": Budget(80, load=128, divisions=77),
    "TensorUpdate, AdditiveTwin": Budget(80, load=128),
    "TensorUpdate, Lion": Budget(64, load=128),
    "TensorUpdate, MPlusAdam": Budget(128, load=128, divisions=141),
    "TensorUpdate, Madam": Budget(80, load=128),
    "TensorUpdate, Muon": Budget(64, load=128),
    "Transcode": Budget(40),
    "Widen": Budget(32),
    "WriteBias": Budget(32),
    "Zero": Budget(32),
    "ZeroBytes": Budget(32),
    "amax_kernel": Budget(64, divisions=0),
    "cast_kernel": Budget(80, divisions=1),
    "cross_entropy_kernel": Budget(40),
    "embedding_backward_long_kernel": Budget(40, load=128),
    "gain_gradient_kernel": Budget(32),
    "norm_backward_kernel": Budget(255, load=128),
    "norm_forward_kernel": Budget(128, load=128),
    "roll_kernel": Budget(64),
    "score_gradients_kernel": Budget(48, load=128),
    "softmax_kernel": Budget(40, load=128),
    "sum_losses_kernel": Budget(32),
    "sum_readers_kernel": Budget(32),
    "swiglu_gradient_kernel": Budget(80),
}
