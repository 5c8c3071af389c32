from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from leap_rl.core.choices import LossDifference
from leap_rl.core.seeding import Purpose, derive_seed
from leap_rl.learners.classifier.classifier import Share
from leap_rl.learners.classifier.task import OmniglotTask
from leap_rl.learners.classifier.unrolled import gradient_through_descent
from leap_rl.learners.config import AgentConfig, ClassifierConfig
from leap_rl.learners.learner import Learner
from leap_rl.learners.registry import make_learner
from leap_rl.learners.task import Progress, TaskSpec
from leap_rl.meta import MAML
from leap_rl.meta.gradient_path import Point
from leap_rl.tasks.config import TaskConfig

RANDOM = np.random.default_rng(0)
# Twenty patterns and twenty noisy copies of each: what can be learned in a few updates.
PATTERNS = RANDOM.integers(0, 2, size=(20, 1, 7, 7)).repeat(4, axis=2).repeat(4, axis=3)
IMAGES: NDArray[np.uint8] = (200 * PATTERNS + RANDOM.integers(0, 55, size=(20, 20, 28, 28))).astype(
    np.uint8
)


def make_task(
    *,
    updates: int = 3,
    batch_size: int = 5,
    seed: int = 7,
    loss_difference: LossDifference = "next_batch",
    second_order: bool = False,
    **learner: Any,
) -> OmniglotTask:
    return OmniglotTask(
        TaskSpec(game="Greek", seed=seed),
        images=IMAGES,
        updates=updates,
        batch_size=batch_size,
        config=ClassifierConfig(**learner),
        loss_difference=loss_difference,
        second_order=second_order,
    )


def tasks(share: Share = "all_but_last") -> Learner:
    agent = AgentConfig(classifier=ClassifierConfig(share=share))
    return make_learner(task=TaskConfig(kind="omniglot"), agent=agent)


def initialization(share: Share = "all_but_last") -> Tensor:
    return tasks(share).random_initialization(1)


def ignore(point: Point) -> None:
    """Sees nothing."""


def run(task: OmniglotTask) -> list[Progress]:
    progress = []
    while not task.done:
        progress.append(task.advance(ignore))
    return progress


def test_it_learns() -> None:
    task = make_task(updates=40, batch_size=20, augment=False)
    task.start(initialization())
    progress = run(task)
    assert progress[0].losses["training_error"] > 0.7
    assert progress[-1].losses["training_error"] < 0.3
    assert progress[-1].losses["validation_error"] < 0.3


def test_every_drawing_of_the_fifteen_hands_comes_before_any_comes_again() -> None:
    task = make_task(updates=100, batch_size=7, augment=False)
    shown = torch.cat([task.batch(update).images for update in range(90)])[:600]
    labels = torch.cat([task.batch(update).labels for update in range(90)])[:600]
    training = torch.from_numpy(IMAGES[:, :15].astype(np.float32)) / 255.0
    pool = {d.numpy().tobytes(): label for label, row in enumerate(training) for d in row}
    seen = [pool[image.numpy().tobytes()] for image in shown]
    assert seen == labels.tolist()
    for epoch in (shown[:300], shown[300:]):
        assert len({image.numpy().tobytes() for image in epoch}) == 300
    assert seen[:300] != seen[300:]


def test_validation_is_on_the_other_five_hands() -> None:
    task = make_task(updates=100, batch_size=20, augment=False)
    held_back = torch.from_numpy(IMAGES[:, 15:].astype(np.float32)) / 255.0
    assert torch.equal(task._validation.images, held_back.reshape(100, 1, 28, 28))
    assert task._validation.labels.tolist() == [i for i in range(20) for _ in range(5)]


def test_a_drawing_is_turned_again_whenever_it_is_shown_but_in_validation() -> None:
    task, again = make_task(), make_task()
    assert torch.equal(task.batch(4).images, again.batch(4).images)
    assert torch.equal(task._validation.images, again._validation.images)
    plain = make_task(updates=3, batch_size=5, augment=False)
    assert torch.equal(task.batch(4).labels, plain.batch(4).labels)
    assert not torch.equal(task.batch(4).images, plain.batch(4).images)
    assert not torch.equal(task.batch(0).images, make_task(seed=8).batch(0).images)


def test_each_update_and_the_validation_has_a_stream_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[int] = []

    def watch(images: Tensor, generator: torch.Generator) -> Tensor:
        seeds.append(generator.initial_seed())
        return images

    monkeypatch.setattr("leap_rl.learners.classifier.task.random_affine", watch)
    task = make_task()
    for update in (0, 1, 2, 1):
        task.batch(update)
    assert len(set(seeds)) == 4
    assert seeds[2] == seeds[4]


def test_it_validates_at_its_end_and_where_it_is_asked_to() -> None:
    for every, expected in ((None, [3]), (2, [2, 3]), (1, [1, 2, 3])):
        task = make_task(updates=3, batch_size=5, validate_every=every)
        task.start(initialization())
        progress = run(task)
        validated = [p.updates for p in progress if "validation_error" in p.losses]
        assert validated == expected
        end = task.learner.evaluate(task._validation)
        last = progress[-1].losses
        assert (last["validation_error"], last["validation"]) == (float(end.error), float(end.loss))


def test_validation_changes_no_bit_of_what_is_learned() -> None:
    ends = []
    for every in (None, 1):
        task = make_task(updates=3, batch_size=5, validate_every=every)
        task.start(initialization())
        run(task)
        ends.append(task.end_point(with_grad=True))
    assert torch.equal(ends[0].theta, ends[1].theta)
    assert ends[0].grad is not None
    assert ends[1].grad is not None
    assert torch.equal(ends[0].grad, ends[1].grad)


def test_each_batch_at_the_end_is_another_at_the_same_point() -> None:
    task = make_task(updates=3, batch_size=5)
    task.start(initialization())
    run(task)
    first, second = (task.end_point(with_grad=True) for _ in range(2))
    assert torch.equal(first.theta, second.theta)
    assert float(first.loss) != float(second.loss)


def test_what_is_observed_is_each_updates_point_loss_and_gradient() -> None:
    task = make_task()
    task.start(initialization())
    points: list[tuple[Tensor, float, Tensor]] = []

    def observe(point: Point) -> None:
        assert point.grad is not None
        points.append((point.theta.clone(), float(point.loss), point.grad.clone()))

    while not task.done:
        task.advance(observe)
    end = task.end_point(with_grad=True)
    assert torch.equal(points[0][0], initialization())
    thetas = [theta for theta, _, _ in points] + [end.theta]
    for (theta, _, grad), after in zip(points, thetas[1:], strict=True):
        torch.testing.assert_close(after, theta - 0.1 * grad, rtol=0.0, atol=1e-7)
    assert float(end.loss) == float(task.learner.evaluate(task.batch(3)).loss)


def test_same_batch_reports_the_batch_again_after_its_update() -> None:
    task = make_task(loss_difference="same_batch")
    task.start(initialization())
    previous = []

    def observe(point: Point) -> None:
        again = point.previous_batch_loss
        expected = (
            None
            if not previous
            else float(task.learner.evaluate(task.batch(len(previous) - 1)).loss)
        )
        previous.append(again)
        assert (None if again is None else float(again)) == expected

    while not task.done:
        task.advance(observe)
    assert previous[0] is None
    assert previous[1] is not None
    assert task.end_point(with_grad=False).previous_batch_loss is not None


@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("loss_difference", ["next_batch", "same_batch"])
def test_a_task_restored_from_a_snapshot_ends_with_the_same_bits(
    loss_difference: LossDifference, second_order: bool
) -> None:
    options = {"loss_difference": loss_difference, "second_order": second_order}
    whole, first, second = (make_task(**options) for _ in range(3))  # type: ignore[arg-type]
    whole.start(initialization())
    first.start(initialization())
    expected = run(whole)
    first.advance(ignore)
    state = first.state()
    first.advance(ignore)  # a state is a copy: what comes later does not change it
    second.restore(state)
    assert [p.losses for p in run(second)] == [p.losses for p in expected[1:]]
    ends = [task.end_point(with_grad=True) for task in (whole, second)]
    for name in ("theta", "loss", "grad"):
        assert torch.equal(getattr(ends[0], name), getattr(ends[1], name)), name
    for name, tensor in whole.named_parameters().items():
        assert torch.equal(tensor, second.named_parameters()[name]), name


def test_the_last_layer_is_the_tasks_own_unless_all_is_shared() -> None:
    heads = []
    for seed in (1, 2):
        task = make_task(seed=seed)
        task.start(initialization())
        heads.append(task.named_parameters()["head.weight"])
    assert not torch.equal(*heads)
    theta0 = initialization("all")
    for seed in (1, 2):
        task = make_task(updates=100, batch_size=20, share="all", seed=seed)
        task.start(theta0)
        assert torch.equal(task.learner.shared, theta0)
        assert task.named_parameters()["head.weight"].any()
    assert theta0.shape[0] == tasks("all").shared_layout().size


def test_a_random_start_draws_weights_and_leaves_normalizations_alone() -> None:
    named = tasks("all").shared_layout().named(initialization("all"))
    assert named["encoder.norm2.weight"].eq(1).all()
    assert named["encoder.norm2.bias"].eq(0).all()
    bound = 1 / (9 * 64) ** 0.5
    assert 0.95 * bound < float(named["encoder.conv2.weight"].abs().max()) <= bound
    encoder = tasks().shared_layout().named(initialization())
    assert torch.equal(encoder["conv2.weight"], named["encoder.conv2.weight"])
    assert not torch.equal(initialization(), tasks().random_initialization(2))


def test_mamls_contribution_is_the_gradient_of_validation_by_the_start() -> None:
    task = make_task(updates=2, batch_size=5, second_order=True)
    theta0 = initialization()
    task.start(theta0)
    start = task.learner.parameters.clone()
    path = MAML().start(theta0)
    while not task.done:
        task.advance(path.visit)
    end = task.end_point(with_grad=True)
    path.finish(end.theta, end.loss, end.grad)
    gradient, loss = gradient_through_descent(
        task.learner.loss_at,
        start,
        batches=[task.batch(0), task.batch(1)],
        last_batch=task._validation,
        lr=0.1,
    )
    torch.testing.assert_close(path.gradient(), gradient[: len(theta0)])
    assert float(end.loss) == pytest.approx(float(loss))
    # It replays the updates that were made: their end is judged as it is judged directly.
    again = float(task.learner.evaluate(task._validation).loss)
    assert float(end.loss) == pytest.approx(again, rel=1e-4)
    assert path.metrics()["displacement"] > 0


def test_random_streams_are_those_of_the_seeds() -> None:
    task = make_task()
    order = torch.randperm(
        300,
        generator=torch.Generator().manual_seed(derive_seed(7, Purpose.DATA, "order", 0)),
    )
    assert torch.equal(task.batch(0).labels, order[:5] // 15)


def test_a_round_begins_with_the_last_layer_of_an_earlier_one() -> None:
    earlier, later = make_task(seed=1), make_task(seed=2)
    earlier.start(initialization())
    run(earlier)
    later.carry_over(earlier.state(), initialization())
    assert torch.equal(later.learner.shared, initialization())
    kept = earlier.named_parameters()["head.weight"]
    assert torch.equal(later.named_parameters()["head.weight"], kept)
    assert len(run(later)) == 3
