"""The queue: first come first served, bounded, with deadlines that hold."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch

from crate_mae import UserError
from crate_mae.web import views
from crate_mae.web.deadline import Deadline, Overdue, watch
from crate_mae.web.limits import Limits, Refusal
from crate_mae.web.request_queue import RequestQueue
from tests.reports.test_inspect_measurements import for_digits
from tests.web.conftest import CLIENT, app_of, serving


def test_first_come_first_served_and_none_is_lost() -> None:
    started: list[int] = []

    async def main() -> list[int]:
        queue = RequestQueue(Limits(workers=1))

        async def one(number: int) -> int:
            with queue.slot() as deadline:
                return await queue.run(lambda: started.append(number) or number, deadline)

        return list(await asyncio.gather(*map(one, range(60))))

    assert asyncio.run(main()) == list(range(60))
    assert started == list(range(60))


def test_one_too_many_is_turned_away_until_a_place_is_free() -> None:
    queue = RequestQueue(Limits(workers=1, waiting=1))
    with queue.slot():
        with queue.slot(), pytest.raises(Refusal, match="busy: 2 requests") as refused, queue.slot():
            pass
        assert refused.value.status == 503
        assert int(refused.value.headers["Retry-After"]) >= 1
        with queue.slot():
            pass


def test_a_deadline_in_the_queue_drops_the_work_and_one_at_work_stops_it() -> None:
    ran: list[str] = []
    stopped = threading.Event()

    def long() -> None:
        try:
            while True:
                Deadline.check()
                time.sleep(0.01)
        finally:
            stopped.set()

    async def main() -> None:
        queue = RequestQueue(Limits(workers=1, seconds=0.3))
        running = asyncio.create_task(queue.run(long, Deadline(0.3)))
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal, match="waited in the queue") as waited:
            await queue.run(lambda: ran.append("dropped"), Deadline(0.1))
        with pytest.raises(Refusal, match="not finished within") as late:
            await running
        assert waited.value.status == late.value.status == 504
        await queue.run(lambda: ran.append("after"), Deadline(5))

    asyncio.run(main())
    assert stopped.is_set()
    assert ran == ["after"]


def test_who_hangs_up_frees_the_worker() -> None:
    async def main() -> str:
        queue = RequestQueue(Limits(workers=1))

        def long() -> None:
            while True:
                Deadline.check()
                time.sleep(0.01)

        running = asyncio.create_task(queue.run(long, Deadline(60)))
        await asyncio.sleep(0.05)
        running.cancel()
        return await queue.run(lambda: "free", Deadline(5))

    assert asyncio.run(main()) == "free"


def test_a_model_notices_the_deadline() -> None:
    model = for_digits()
    watch(model)
    image, mask = torch.zeros(1, 1, 8, 8), torch.arange(16)[None] < 4
    model(image, mask)  # nobody waits here: no deadline
    deadline = Deadline(60)
    with deadline.of_this_thread():
        model(image, mask)
        deadline.cut()
        with pytest.raises(Overdue):
            model(image, mask)
        with pytest.raises(Overdue):
            next(model.encoder.steps(torch.zeros(1, 17, 16)))
    model(image, mask)


def test_busy_and_late_over_http_and_then_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()

    def slow(*_: object) -> None:
        entered.set()
        while True:
            Deadline.check()
            time.sleep(0.01)

    app = app_of(limits=Limits(workers=1, waiting=0, seconds=1))
    with serving(app) as address, ThreadPoolExecutor() as people, monkeypatch.context() as patch:
        patch.setattr(views, "layers", slow)
        first = people.submit(CLIENT.post, f"{address}/api/layers?sample=digit-1", timeout=30)
        entered.wait(10)
        turned_away = CLIENT.post(f"{address}/api/complete?sample=digit-1")
        assert turned_away.status_code == 503
        assert turned_away.headers["retry-after"] == "2"
        assert "busy" in turned_away.json()["error"]
        assert CLIENT.get(f"{address}/").status_code == 200
        assert first.result().status_code == 504
        assert "1 seconds" in first.result().json()["error"]
        assert CLIENT.post(f"{address}/api/complete?sample=digit-1").status_code == 200
        entered.clear()
        with pytest.raises(httpx.ReadTimeout):
            CLIENT.post(f"{address}/api/layers?sample=digit-1", timeout=0.2)
        entered.wait(10)
        for _ in range(50):  # the one who hung up is noticed at once, long before the deadline
            if CLIENT.post(f"{address}/api/complete?sample=digit-1").status_code == 200:
                break
            time.sleep(0.01)
        else:
            pytest.fail("the place of one who hung up was not given back")


@pytest.mark.parametrize(
    "wrong", [{"upload": 0}, {"pixels": float("nan")}, {"seconds": -1}, {"waiting": -1}, {"workers": 0}]
)
def test_limits_that_are_none(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="choose"):
        Limits(**wrong)
