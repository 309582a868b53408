"""How few bits store a number: what a block of a format holds, and how many bytes it has.

Two kinds. A block of ggml packs codes and scales together, and a row is a whole number of blocks.
Elsewhere codes lie in one tensor and what a group of them shares in another.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from core.sizes import Bytes

_GGML = "ggml, src/ggml-common.h and ggml.h; package gguf, GGML_QUANT_SIZES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A type of ggml. Checked: the package gguf says the same (tests/core/test_quantised.py)."""

    name: str
    type_id: int  # in a GGUF file
    weights: int  # in one block
    n_bytes: int  # of one block
    source: str = _GGML

    @property
    def bits_per_weight(self) -> float:
        return bits_per_weight(self.n_bytes, self.weights)

    def holds_rows_of(self, n_columns: int) -> bool:
        """Whether a row of so many numbers is a whole number of blocks."""
        return n_columns % self.weights == 0

    def bytes_of(self, n_rows: int, n_columns: int) -> int:
        """Bytes of a matrix. Raises: ValueError if its rows are not whole blocks."""
        if not self.holds_rows_of(n_columns):
            raise ValueError(
                f"columns={n_columns} is no multiple of {self.weights}, the block of {self.name}; "
                "choose another type"
            )
        return n_rows * (n_columns // self.weights) * self.n_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a group of numbers has in common: a scale, a zero, the greatest absolute value."""

    bits: int
    columns: int = 0  # of the group, along the inputs of a matrix; 0: all
    rows: int = 1  # along its outputs; 0: all
    flat: bool = False  # `columns` numbers in a line, wherever a row ends

    def n_groups(self, n_rows: int, n_columns: int) -> int:
        if self.flat:
            return -(-n_rows * n_columns // self.columns)
        down = -(-n_rows // self.rows) if self.rows else 1
        across = -(-n_columns // self.columns) if self.columns else 1
        return down * across


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """Codes of some bits, and what groups of them share."""

    name: str
    bits: int  # of one code
    shared: tuple[Shared, ...] = ()
    source: str

    @property
    def bits_per_weight(self) -> float:
        """In a matrix so large that what a row or the whole of it shares vanishes."""
        groups = [s for s in self.shared if s.columns and s.rows]
        return float(self.bits + sum(Fraction(s.bits, s.columns * s.rows) for s in groups))

    def bytes_of(self, n_rows: int, n_columns: int) -> int:
        """Bytes of a matrix; a group at the edge counts whole, as does the last byte."""
        bits = n_rows * n_columns * self.bits
        bits += sum(s.bits * s.n_groups(n_rows, n_columns) for s in self.shared)
        return -(-bits // 8)


Storage = Block | Scaled


def bits_per_weight(block_bytes: int, block_weights: int) -> float:
    """Of a format whose blocks have so many bytes. Raises: ValueError."""
    for name, value in (("block_bytes", block_bytes), ("block_weights", block_weights)):
        if value < 1:
            raise ValueError(f"{name}={value} is below 1; choose 1 or more")
    return block_bytes * 8 / block_weights


_WIDTHS = {"fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "e4m3": 8, "e8m0": 8}
_CODE = re.compile(r"(?:mx|nv)?(?:fp|int|nf|uint|w)(\d+)|(e\dm\d)|(bf16)")
_GROUP = re.compile(r"\b(?:g|group ?)(\d+)\b|(\d+) ?[x×] ?(\d+)")


def width(name: str) -> int:
    """Bits of a number format: 16 for fp16, bf16 and float16, 4 for int4. Raises: ValueError."""
    short = name.lower().replace("float", "fp").replace("bfp", "bf").replace("_", "")
    found = _WIDTHS.get(short) or next(iter(map(int, re.findall(r"\d+", short))), 0)
    if not 1 <= found <= 64:
        raise ValueError(f"format={name!r} tells no number of bits; choose such as int4 or fp16")
    return found


def bits_of(
    name: str,
    *,
    block: int = 0,
    scale: str = "",
    scale_bits: int = 0,
    zero: str = "",
    absmax: str = "",
    double_quant: bool = False,
    block2: int = 256,
) -> float:
    """Bits a weight of a format that is named and, where its name does not tell, described.

    `name` is one of FORMATS, or tells the code and the group, as "int4 g128" or "FP8 128x128 block"
    do. `block`: numbers that share a scale. `absmax`: a scale by another name; with `double_quant`
    `block2` of them share a float32. Raises: ValueError.
    """
    described = any((block, scale, scale_bits, zero, absmax, double_quant))
    if name in FORMATS and not described:
        return FORMATS[name].bits_per_weight
    code = _CODE.search(name.lower())
    if not code:
        raise ValueError(
            f"format={name!r} is unknown; choose one of {', '.join(FORMATS)}, or name the code "
            "and the group, as in int4 g128"
        )
    bits = width(code[0].removeprefix("mx").removeprefix("nv"))
    group = _GROUP.search(name.lower())
    n = block or (math.prod(int(g) for g in group.groups() if g) if group else 0)
    shared = scale_bits or sum(width(part) for part in (scale, absmax) if part)
    if double_quant and not absmax:
        shared = 8
    shared += width(zero) if zero else 0
    if shared and not n:
        raise ValueError(f"format={name!r} has a scale and no group; give block, or name g128")
    found = Fraction(bits) + (Fraction(shared, n) if n else 0)
    return float(found + (Fraction(32, n * block2) if double_quant else 0))


# (number in a file, name, weights of a block, its bytes); 4, 5 and 31 to 38 but for 34 and 35 were
# taken back: those of them whose size is known are here, so that old files can be read.
_TYPES = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (31, "Q4_0_4_4", 32, 18),
    (32, "Q4_0_4_8", 32, 18),
    (33, "Q4_0_8_8", 32, 18),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)
GGML = {name: Block(name=name, type_id=i, weights=n, n_bytes=b) for i, name, n, b in _TYPES}
GGML_BY_ID = {block.type_id: block for block in GGML.values()}

_OCP = "OCP Microscaling Formats (MX) v1.0: one E8M0 scale of 8 bits for 32 numbers"
_FP8 = "compressed-tensors, FP8 with a float32 scale for each output channel"
_GPTQ = "AutoAWQ and GPTQ checkpoints: float16 scale and packed integer zero for each group"
_BNB = "QLoRA (arXiv:2305.14314), section 3; bitsandbytes, functional.py"


def grouped(code_bits: int, group: int, *, act_order: bool = False) -> Scaled:
    """Integers with a float16 scale and a zero of as many bits for `group` inputs, as AWQ and GPTQ
    keep them; with act_order also the group of each input in 32 bits. group=0: a whole row.
    """
    zero = Shared(bits=16 + code_bits, columns=group)
    order = (Shared(bits=32, columns=1, rows=0),) if act_order else ()
    return Scaled(
        name=f"int{code_bits} g{group or 'row'}",
        bits=code_bits,
        shared=(zero, *order),
        source=_GPTQ,
    )


def nf4(block: int = 64, block2: int = 0) -> Scaled:
    """NormalFloat of 4 bits: a float32 maximum for each block, or one of 8 bits and a float32 for
    `block2` of those.
    """
    first = Shared(bits=8 if block2 else 32, columns=block, flat=True)
    second = (Shared(bits=32, columns=block * block2, flat=True),) if block2 else ()
    return Scaled(
        name="NF4 double quant" if block2 else "NF4", bits=4, shared=(first, *second), source=_BNB
    )


def _mx(name: str, bits: int) -> Scaled:
    return Scaled(name=name, bits=bits, shared=(Shared(bits=8, columns=32),), source=_OCP)


def _plain(name: str, bits: int) -> Scaled:
    return Scaled(name=name, bits=bits, source="IEEE 754; Google's bfloat16; OCP 8-bit floats")


SCALED = {
    s.name: s
    for s in (
        _plain("fp32", 32),
        _plain("fp16", 16),
        _plain("bf16", 16),
        _plain("fp8", 8),
        Scaled(name="FP8 channel", bits=8, shared=(Shared(bits=32),), source=_FP8),
        Scaled(
            name="FP8 128x128",
            bits=8,
            shared=(Shared(bits=32, columns=128, rows=128),),
            source="deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: weight_scale_inv in float32",
        ),
        Scaled(
            name="int8 channel",
            bits=8,
            shared=(Shared(bits=32),),
            source="bitsandbytes, Linear8bitLt: SCB, one float32 for each output",
        ),
        Scaled(
            name="int4 bf16 g32",
            bits=4,
            shared=(Shared(bits=32, columns=32),),
            source="pytorch-labs/gpt-fast, quantize.py: scale and zero in bfloat16",
        ),
        _mx("MXFP8", 8),
        _mx("MXFP6", 6),
        _mx("MXFP4", 4),
        Scaled(
            name="NVFP4",
            bits=4,
            shared=(Shared(bits=8, columns=16), Shared(bits=32, rows=0)),
            source="NVIDIA TensorRT Model Optimizer: E4M3 scale for 16, float32 for a tensor",
        ),
        nf4(),
        nf4(block2=256),
        grouped(3, 128),
        grouped(4, 32),
        grouped(4, 64),
        grouped(4, 128),
        grouped(8, 128),
    )
}

FORMATS: dict[str, Storage] = {**SCALED, **GGML}  # by name; of one name, the same bits a weight


def stored_bytes(*parts: tuple[float, float]) -> Bytes:
    """Of (numbers, bits of each) that are stored side by side."""
    return Bytes(sum(n * bits / 8 for n, bits in parts))
