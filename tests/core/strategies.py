"""Hypothesis strategies for what core takes: settings and events."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core import specs
from core.events import Array, Ended, Event, Memory, Sample, Scalar, Span, Started, Token

train_specs = st.builds(
    specs.TrainSpec,
    problem=st.sampled_from(specs.PROBLEMS),
    noise=st.floats(0, specs.MAX_NOISE),
    features=st.lists(st.sampled_from(specs.FEATURES), min_size=1, unique=True).map(tuple),
    hidden=st.lists(st.integers(1, specs.MAX_WIDTH), max_size=specs.MAX_DEPTH).map(tuple),
    activation=st.sampled_from(specs.ACTIVATIONS),
    optimizer=st.sampled_from(specs.OPTIMIZERS),
    learning_rate=st.floats(1e-6, 10),
    batch_size=st.integers(1, specs.MAX_BATCH),
    precision=st.sampled_from(specs.PRECISIONS),
    seed=st.integers(0, specs.MAX_SEED),
    n_epochs=st.integers(1, specs.MAX_EPOCHS),
)

texts = st.text(max_size=12) | st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "null", "", "a\nb", '"', "\\", "\u2028", "Ended", "重み"]
)
finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**60)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)

arrays = st.sampled_from([np.uint8, np.int8, np.int32, np.float32, np.float64]).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)

event_kinds: dict[type[Event], st.SearchStrategy[Event]] = {
    Started: st.builds(
        Started,
        spec_id=texts,
        attempt=texts,
        spec=json_objects,
        machine=json_objects,
        code_version=texts,
        started_unix_s=finite,
    ),
    Span: st.builds(Span, step=counts, phase=texts, op=texts, start_s=finite, end_s=finite),
    Memory: st.builds(
        Memory,
        step=counts,
        phase=texts,
        op=texts,
        held_bytes=st.dictionaries(texts, counts, max_size=6),
    ),
    Scalar: st.builds(Scalar, step=counts, name=texts, value=st.floats() | st.integers()),
    Array: st.builds(
        Array,
        step=counts,
        op=texts,
        role=texts,
        values=arrays,
        low=st.none() | st.floats(),
        high=st.none() | st.floats(),
    ),
    Ended: st.builds(
        Ended,
        status=texts,
        message=texts,
        n_steps=counts,
        wall_s=finite,
        cpu_s=finite,
        advice=json_objects,
    ),
    Token: st.builds(
        Token,
        step=counts,
        row=counts,
        phase=texts,
        id=counts,
        text=texts,
        start_s=st.none() | finite,
        end_s=st.none() | finite,
        prob=st.none() | finite,
        top=st.lists(st.tuples(counts, texts, finite).map(list), max_size=3),
    ),
    Sample: st.builds(Sample, step=counts, name=texts, text=texts),
}
events = st.one_of(*event_kinds.values())
