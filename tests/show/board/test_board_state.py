"""What the pages are told: verdicts as they form, curves as far as runs have come, and nothing computed twice."""

import gzip
import json
import math
import shutil
import threading
import time
from statistics import fmean

import pytest
from board_server import board_of, served

from instant_slots import InstantSlots, run_study
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.show.board import views
from oelm.show.board import watch as watching
from oelm.show.board.follow import VALUES
from oelm.show.board.state import Board
from oelm.storage.files import REPORT_RESULTS
from oelm.storage.ownership import Process
from oelm.study.archiving import archive
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from sized_studies import losses_with_slope, sized_study
from stored_runs import facts_of, hypothesis, small_study, store_finished, store_study

ARMS = ["trained", "frozen_head_orthogonal"]
SPREAD = {0: 0.0, 1: 0.003, 2: -0.003, 3: 0.001}


def study_of_two(**changes):
    return small_study(arms=ARMS, seeds=[0, 1, 2, 3], hypotheses=[hypothesis("not_worse")], **changes)


def loss(arm, seed, *_):
    return 3.0 + SPREAD[seed] + (0.01 if arm != "trained" else 0.0) + 0.001 * (seed % 2) * (arm != "trained")


def all_but_one(arm, seed, *_):
    return None if (arm, seed) == (ARMS[1], 3) else loss(arm, seed)


def finish_the_last(study, folder):
    plan = planned(study, Shelf(folder), facts=facts_of(study))
    (run,) = [run for run in plan.runs if run.stored is None]
    return store_finished(run, folder, loss(run.arm, run.seed))


def running(study, folder, *, records=3):
    """A final run that is under way, as its own process writes it: this one."""
    plan = planned(study, Shelf(folder), facts=facts_of(study))
    run = next(run for run in plan.runs if run.stored is None)
    path = store_finished(run, folder, 3.0)
    directory = RunDirectory(path)
    lines = directory.metrics_file.read_text().splitlines(keepends=True)
    for file in (directory.seal_file, directory.result_file):
        file.unlink()
    directory.metrics_file.write_text("".join(lines[:records]))
    directory.write_status("running", **Process.current().__dict__, steps=run.run.training.steps)
    return directory, [json.loads(line) for line in lines[records:]]


def test_a_card_changes_its_verdict_when_the_last_seed_finishes(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    with served(board_of(study, folder)) as server:
        (card,) = server.standing("small")["cards"]
        assert card["outcome"] == "undecided"
        assert "7 of 8" in card["incomplete"]
        finish_the_last(study, folder)
        found = server.standing("small", until=lambda each: each["is_complete"])
        chinese = server.standing("small", language="zh")
        assert chinese["question"]
        assert chinese["confounds"]["text"] != found["confounds"]["text"]
        assert [arm["colour"] for arm in chinese["arms"]] == ["#000000", "#D55E00"]
        (card,) = found["cards"]
        assert (card["outcome"], card["incomplete"]) == ("supported", None)
        assert card["interval"]["low"] < card["interval"]["mean"] < card["interval"]["high"] < card["interval"]["to"]
        assert len(card["interval"]["seeds"]) == 4
        assert found["missing"] == []


def test_the_standing_is_computed_once_until_something_changes(tmp_path, monkeypatch):
    from oelm.show.board import state

    study, folder, calls = study_of_two(), tmp_path / "small", []
    store_study(study, folder, all_but_one)
    whole = state.standing_of
    monkeypatch.setattr(state, "standing_of", lambda *given, **more: calls.append(1) or whole(*given, **more))
    with served(board_of(study, folder)) as server:
        for _ in range(5):
            server.standing("small")
        assert len(calls) == 1
        finish_the_last(study, folder)
        server.standing("small", until=lambda each: each["is_complete"])
        assert len(calls) == 2


def test_a_study_of_which_nothing_has_begun_says_so_on_every_card(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    folder.mkdir()
    with served(board_of(study, folder)) as server:
        for language, word in (("en", "no run"), ("zh", "还没有运行")):
            (card,) = server.standing("small", language=language)["cards"]
            assert word in card["incomplete"]


def test_a_damaged_run_is_part_of_no_verdict_and_named(tmp_path):
    """One with an edited result, and one without its config."""
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    paths = [next(folder.glob(f"trained-s{seed}*")) for seed in (0, 1)]
    result = RunDirectory(paths[0]).result_file
    result.write_text(result.read_text().replace("3.0", "2.0"))
    RunDirectory(paths[1]).config_file.unlink()
    with served(board_of(study, folder)) as server:
        found = server.standing("small")
        assert found["cards"][0]["outcome"] == "undecided"
        for seed, path in enumerate(paths):
            (row,) = [row for row in found["rows"] if row["arm"] == "trained" and row["seed"] == seed]
            assert (row["id"], row["state"]) == (f"small/{path.name}", "damaged")
        assert {row["id"] for row in server.json("data/study", name="small")["rows"]} == {
            row["id"] for row in found["rows"]
        }
        (study_line,) = server.json("data/overview")["studies"]
        assert study_line["states"] == {"damaged": 2, "finished": 6}
        errors = {each["id"]: each["error"] for each in study_line["failures"]}
        assert "damaged" in errors[f"small/{paths[0].name}"]
        assert "config.json" in errors[f"small/{paths[1].name}"]


def test_a_run_is_drawn_as_its_arm_wherever_it_is_shown(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    shutil.copytree(next(folder.glob("trained-s0*")), tmp_path / "alone")
    with served(board_of(study, folder, root=tmp_path)) as server:
        looks = {
            arm["key"]: {key: arm[key] for key in ("colour", "dash", "symbol")}
            for arm in server.standing("small")["arms"]
        }
        names = [f"small/{next(folder.glob(f'{arm}-s{seed}-*')).name}" for arm in reversed(ARMS) for seed in (1, 2)]
        compared = [run["look"] for run in server.json("data/compare", name=names)["runs"]]
        assert compared == [looks[arm] for arm in reversed(ARMS) for _ in range(2)]
        assert [server.json("data/run", name=name)["look"] for name in names] == compared
        assert server.json("data/run", name="alone")["look"] is None


def test_the_language_is_that_of_the_address_or_the_command_or_the_browser(tmp_path):
    def spoken(server, query="", **headers):
        return json.loads(server.answer(f"/words{query}", **headers)[2])["language.code"]

    chinese = {"accept-language": "fr, zh-CN;q=0.9, en;q=0.8"}
    with served(Board(tmp_path), language=None) as server:
        assert spoken(server, **chinese) == "zh"
        assert spoken(server, "?lang=en", **chinese) == "en"
        assert spoken(server, **{"accept-language": "fr"}) == spoken(server) == "en"
    with served(Board(tmp_path), language="en") as server:
        assert spoken(server, **chinese) == "en"


def all_bands(watch):
    """Of training and validation, which are followed from now on."""
    found = {}
    for kind in VALUES:
        watch.follow_all(kind)
        for arm, names in watch.bands(kind).items():
            found[arm] = found.get(arm, {}) | names
    return found


def test_a_band_is_computed_again_only_where_a_run_went_on(tmp_path, monkeypatch):
    board, study, folder = stored_board(tmp_path)
    directory, rest = running(study, folder)
    watch = board.watch("small")
    with watch.lock:
        watch.refresh()
        all_bands(watch)
        before, version = all_bands(watch), watch.version
        watch.refresh()
        assert watch.version == version
    directory.append_metrics(next(record for record in rest if "val_loss" not in record))
    computed = []
    whole = watching.points_at
    monkeypatch.setattr(
        watching, "points_at", lambda members, name, steps: computed.append(name) or whole(members, name, steps)
    )
    with watch.lock:
        watch.refresh()
        after = all_bands(watch)
        assert watch.version == version + 1
    assert computed == ["train_loss"]
    arm = watch.arm_of(f"small/{directory.path.name}")
    assert {each for each in before if before[each] != after[each]} == {arm}


def test_a_band_is_the_mean_of_the_seeds_that_have_come_so_far(tmp_path):
    """As worked out one by one."""
    board, study, folder = stored_board(tmp_path)
    running(study, folder, records=5)
    watch = board.watch("small")
    with watch.lock:
        watch.refresh()
        for arm, names in all_bands(watch).items():
            for name, band in names.items():
                assert band["seeds"] == 4
                runs = [watch.curve_of(id, name) for id in watch.rows if watch.arm_of(id) == arm]
                for step, tokens, seconds, *values, count in band["points"]:
                    here = [point for run in runs for point in run if point[0] == step]
                    own = [point[3] for point in here]
                    assert count == len(own)
                    assert values == pytest.approx([fmean(own), min(own), max(own)])
                    assert (tokens, seconds) == pytest.approx((fmean(p[1] for p in here), fmean(p[2] for p in here)))


def test_seeds_apart_are_the_runs_that_the_study_plans(tmp_path):
    board, study, folder = stored_board(tmp_path)
    directory, _ = running(study, folder)
    shutil.copytree(directory.path, folder / "unplanned")
    watch = board.watch("small")
    with watch.lock:
        watch.refresh()
        watch.group_by({id: row["arm"] for id, row in watch.rows.items() if row["run"] != "unplanned"})
    runs = views.seeds(board, "small", "val_loss")["runs"]
    assert len(runs) == len(watch.rows) - 1
    assert "small/unplanned" not in runs


def test_only_files_that_changed_are_opened_and_only_lines_that_are_drawn_are_parsed(tmp_path, monkeypatch):
    from oelm.show.board import follow

    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    directory, rest = running(study, folder)
    watch = board_of(study, folder).watch("small")
    parsed, polled, records, poll = [], [], follow._records, follow.Follower.poll
    monkeypatch.setattr(follow, "_records", lambda lines: parsed.extend(lines) or records(lines))
    monkeypatch.setattr(follow.Follower, "poll", lambda self: polled.append(self.file) or poll(self))
    with watch.lock:
        watch.refresh()
        watch.follow_all("validation")
        assert len(polled) == 8
        assert parsed
        assert all(b"val_loss" in line for line in parsed)
        polled.clear()
        watch._listed_at = float("-inf")
        watch.refresh()
        assert polled == []
        directory.append_metrics(rest[0])
        watch.refresh()
        assert polled == [directory.metrics_file]


def test_seeds_apart_are_together_a_bounded_number_of_points_with_the_last_of_each(tmp_path, monkeypatch):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    monkeypatch.setattr("oelm.show.board.views.MOST_APART", 24)
    monkeypatch.setattr("oelm.show.board.views.FEWEST_POINTS", 1)
    with served(board_of(study, folder)) as server:
        found = server.json("data/seeds", name="small", y="train_loss")
        whole = server.json("data/run", name=next(iter(found["runs"])))["curves"]["train_loss"]["points"]
    assert len(found["runs"]) == 8
    assert len(whole) > 3
    for run in found["runs"].values():
        assert 2 <= len(run["points"]) <= 3
        assert run["points"][-1][0] == whole[-1][0]


def test_a_long_answer_is_packed_for_a_browser_that_takes_it_so(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    with served(board_of(study, folder)) as server:
        server.standing("small")
        _, headers, plain = server.answer("/data/study?name=small")
        _, packed_headers, packed = server.answer("/data/study?name=small", **{"Accept-Encoding": "gzip"})
    assert "content-encoding" not in headers
    assert packed_headers["content-encoding"] == "gzip"
    assert len(packed) < len(plain) / 2
    assert json.loads(gzip.decompress(packed)) == json.loads(plain)


@pytest.fixture
def standing_begun(monkeypatch):
    """Set when the first standing is begun."""
    from oelm.show.board import state

    begun, whole = threading.Event(), state.standing_of
    monkeypatch.setattr(state, "standing_of", lambda *given, **more: begun.set() or whole(*given, **more))
    monkeypatch.setattr(state, "LONGEST_STANDSTILL", 60.0)
    monkeypatch.setattr(state, "LONGEST_DELAY", 60.0)
    return begun


def stored_board(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    return board_of(study, folder), study, folder


def test_no_standing_is_begun_while_somebody_is_answered(tmp_path, standing_begun):
    board, _, _ = stored_board(tmp_path)
    with board.answering():
        board.want_standing("small")
        assert not standing_begun.wait(0.5)
    assert standing_begun.wait(60)
    board._worker.shutdown()
    assert board.known_standing("small").progress() == {"done": 7, "planned": 8}


def test_a_standing_that_was_begun_stands_still_while_somebody_is_answered(tmp_path, monkeypatch, standing_begun):
    board, _, _ = stored_board(tmp_path)
    monkeypatch.setattr(board, "_let_a_page_be_drawn_first", lambda: None)  # it was begun before anybody asked
    with board.answering():
        board.want_standing("small")
        assert standing_begun.wait(60)
        with pytest.raises(TimeoutError):
            board._pending["small"].result(1.0)
        assert board.known_standing("small") is None
    board._worker.shutdown()
    assert board.known_standing("small").progress() == {"done": 7, "planned": 8}


def test_a_standing_waits_for_a_page_that_asks_for_more(tmp_path, monkeypatch, standing_begun):
    monkeypatch.setattr("oelm.show.board.state.LONG_ANSWER", 0.0)
    monkeypatch.setattr("oelm.show.board.state.NEXT_QUESTION", 60.0)
    board, _, _ = stored_board(tmp_path)
    views.study(board, "small", "en")
    assert not standing_begun.wait(0.5)
    board._quiet_from = time.monotonic()
    assert standing_begun.wait(60)
    board._worker.shutdown()


def test_an_overview_that_took_long_waits_for_no_further_question(tmp_path, monkeypatch, standing_begun):
    monkeypatch.setattr("oelm.show.board.state.LONG_ANSWER", 0.0)
    monkeypatch.setattr("oelm.show.board.state.NEXT_QUESTION", 60.0)
    board, _, _ = stored_board(tmp_path)
    board.overview()
    board.want_standing("small")
    assert standing_begun.wait(30)
    board._worker.shutdown()


def test_a_run_whose_process_died_is_interrupted_though_no_file_changed(tmp_path, monkeypatch):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    directory, _ = running(study, folder)
    watch = board_of(study, folder).watch("small")
    with watch.lock:
        watch.refresh()
    id = f"small/{directory.path.name}"
    assert watch.rows[id]["state"] == "running"
    monkeypatch.setattr(Process, "is_alive_here", lambda self: False)
    with watch.lock:
        watch.refresh()
    assert watch.rows[id]["state"] == "interrupted"


def test_a_failed_run_and_its_error_line_are_in_the_overview(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    with served(Board(tmp_path)) as server:
        assert server.json("data/overview")["studies"][0]["failures"] == []
        directory, _ = running(study, folder)
        directory.write_status("failed", error="CUDA out of memory")
        server.board.watch("small")._listed_at = float("-inf")
        (line,) = server.json("data/overview")["studies"]
        assert line["failures"] == [{"id": f"small/{directory.path.name}", "error": "CUDA out of memory"}]


def test_an_overview_is_as_of_now_though_only_a_study_is_watched(tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    with served(board_of(study, folder)) as server:
        server.standing("small")
        finish_the_last(study, folder)
        deadline = time.monotonic() + 60
        while server.json("data/overview")["studies"][0]["progress"] != {"done": 8, "planned": 8}:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_an_overview_has_question_and_verdicts_in_both_languages(tmp_path):
    study, folder = study_of_two(question={"en": "Does it hold?", "zh": "成立吗？"}), tmp_path / "small"
    store_study(study, folder, loss)
    with served(board_of(study, folder)) as server:
        server.standing("small")
        (line,) = server.json("data/overview")["studies"]
        assert line["in_short"]["en"]["question"] == "Does it hold?"
        assert line["in_short"]["zh"]["question"] == "成立吗？"
        (verdict,) = line["in_short"]["en"]["verdicts"]
        assert verdict.startswith("not_worse: supported (")
        assert "exploratory: not registered before its runs" in verdict
        assert line["in_short"]["zh"]["verdicts"][0].startswith("not_worse: 成立（")


def test_an_archive_stands_for_a_folder(tmp_path):
    study, folder = study_of_two(), tmp_path / "work" / "small"
    store_study(study, folder, loss)
    packed = tmp_path / "runs" / "small.zip"
    packed.parent.mkdir()
    archive("small", folder, packed)
    board = board_of(study, packed)
    assert board.is_still(["small"])
    assert not board_of(study, folder).is_still(["small"])
    assert not Board(tmp_path / "work").is_still(None)
    with served(board) as server:
        (card,) = server.standing("small")["cards"]
        assert card["outcome"] == "supported"
        assert len(server.json("data/curves", name="small")["bands"]) == 2
    with served(Board(packed.parent)) as server:
        (line,) = server.json("data/overview")["studies"]
        assert (line["name"], line["states"]) == ("small", {"finished": 8})


def test_a_folder_whose_declaration_is_not_here_is_shown_without_verdicts(tmp_path):
    study, folder = study_of_two(), tmp_path / "nobodys-study"
    store_study(study, folder, loss)
    with served(Board(tmp_path)) as server:
        found = server.json("data/study", name="nobodys-study")
        how = f"oelm board STUDY.yaml --runs {folder}"
        assert found["problem"] == f"the declaration of nobodys-study is not here; give it: {how}"
        assert {arm["key"] for arm in found["arms"]} == set(ARMS)
        assert len(found["rows"]) == 8
        assert set(server.json("data/curves", name="nobodys-study")["bands"]) == set(ARMS)


def test_single_runs_are_shown_and_compared(tmp_path):
    study = study_of_two()
    store_study(study, tmp_path / "work", loss)
    for number, path in enumerate(sorted((tmp_path / "work").iterdir())[:2]):
        path.rename(tmp_path / f"run-{number}")
    with served(Board(tmp_path)) as server:
        assert [row["id"] for row in server.json("data/overview")["runs"]] == ["run-0", "run-1"]
        found = server.json("data/compare", name=["run-0", "run-1"])
        assert {each["key"] for each in found["differences"]} >= {"seeds.weights"}
        assert server.json("data/compare", name=["run-0", "run-7"])["gone"] == ["run-7"]
        assert server.json("data/compare", name=["run-7", "run-8"]) == 404


def test_looks_say_what_the_next_one_needs(tmp_path):
    study, folder = study_of_two(looks=[3, 4]), tmp_path / "small"
    store_study(study, folder, lambda arm, seed, *_: loss(arm, seed) if seed < 1 else None)
    with served(board_of(study, folder)) as server:
        (line,) = server.standing("small")["next_look"]
        assert "look 1 of 2" in line.lower()


def test_runs_that_looks_made_needless_are_not_waited_for(tmp_path):
    claims = [hypothesis("not_worse")]
    study = small_study(arms=ARMS, seeds=list(range(8)), looks=[4, 8], hypotheses=claims)
    noise = [0.003, -0.004, 0.001, 0.0, 0.002, -0.001, 0.004, -0.002]
    run_study(study, InstantSlots(tmp_path / "small", lambda arm, seed, *_: 3.0 + noise[seed - (arm == "trained")]))
    with served(board_of(study, tmp_path / "small")) as server:
        standing = server.standing("small")
        (line,) = server.json("data/overview")["studies"]
    assert standing["is_complete"]
    assert standing["progress"] == line["progress"] == {"done": 8, "planned": 8}
    assert [row["state"] for row in standing["rows"]].count("not_needed") == 8


def test_a_value_chosen_between_those_that_were_tried_has_its_loss(tmp_path):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3, 2e-3]}, "seeds": [1000, 1001, 1002], "choose": "fitted"}
    study = small_study(arms=ARMS[:1], seeds=[0], tuning=tuning)

    def losses(arm, seed, stage, point):
        rate = dict(point or ()).get("training.learning_rate", 1e-3)
        return 3.0 + math.log(rate / 1.2e-3) ** 2 + 0.0001 * (seed % 3)

    store_study(study, tmp_path / "small", losses)
    with served(board_of(study, tmp_path / "small")) as server:
        ((arm,),) = [panel["arms"] for panel in server.standing("small")["tuning"]]
    assert arm["values"] == [5e-4, 1e-3, 2e-3]
    assert arm["chosen"] == pytest.approx(1.2e-3, rel=0.01)
    assert arm["chosen_loss"] == pytest.approx(3.0, abs=0.01)


def test_a_run_is_called_and_drawn_as_the_arm_of_its_study_though_nobody_opened_that(tmp_path):
    study = sized_study(sizes={"width": [16, 32]}, hypotheses=[hypothesis(size="width32")])
    store_study(study, tmp_path / "small", losses_with_slope())
    board = board_of(study, tmp_path / "small")
    with served(board) as server:
        ids = [f"small/{path.name}" for path in sorted((tmp_path / "small").glob("*-s0-*"))]
        server.json("data/compare", name=ids[:2])
        board._worker.submit(lambda: None).result()
        runs = server.json("data/compare", name=ids[:2])["runs"]
    assert [run["arm"] for run in runs] == [id.removeprefix("small/").partition("-s0-")[0] for id in ids[:2]]
    assert all("+width" in run["arm"] and run["look"] for run in runs)


def test_tuning_is_shown_size_by_size_the_main_one_first(tmp_path):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3]}, "seeds": [1000], "at": ["width16", "width32"]}
    sizes = {"width": [16, 32]}
    study, folder = sized_study(tuning=tuning, sizes=sizes, hypotheses=[hypothesis(size="width32")]), tmp_path / "small"
    losses = losses_with_slope()
    store_study(
        study, folder, lambda arm, seed, stage, point: losses(arm, seed, stage, point) if stage == "tuning" else None
    )
    with served(board_of(study, folder)) as server:
        standing = server.standing("small")
    assert [(panel["label"], len(panel["arms"])) for panel in standing["tuning"]] == [
        ("learning rate", 2),
        ("learning rate (width16)", 2),
    ]
    assert {arm["size"] for arm in standing["arms"]} == {"width32"}


def test_nothing_is_polled_while_nobody_looks(tmp_path, monkeypatch):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    polls = []
    with served(board_of(study, folder)) as server:
        server.json("data/overview")
        monkeypatch.setattr("oelm.show.board.watch.Watch.refresh", lambda self: polls.append(1))
        time.sleep(2.5)
    assert polls == []


def test_generated_text_that_was_kept_is_shown_and_breaks_no_seal(tmp_path):
    from oelm.run.stored_models.sampling import keep_sample, run_to_keep_in

    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    path = next(folder.glob("trained-s0*"))
    facts = {"prompt": "Once", "temperature": 0.8, "top_k": 50, "seed": 0}
    keep_sample(run_to_keep_in(path), path, ["Once upon a time"], **facts)
    with served(board_of(study, folder)) as server:
        found = server.json("data/run", name=f"small/{path.name}")
        assert found["sample"]["texts"] == ["Once upon a time"]
        assert found["problems"] == []
        assert server.standing("small")["is_complete"]
    with pytest.raises(UserError, match="--keep"):
        run_to_keep_in(tmp_path)


def test_a_report_is_that_of_this_study_and_says_so_if_it_is_of_other_results(tmp_path, monkeypatch):
    """The folder of a copy may have the name of another study."""
    monkeypatch.chdir(tmp_path)
    study, folder = study_of_two(), tmp_path / "copies" / "demo"
    store_study(study, folder, all_but_one)
    board = board_of(study, folder)
    losses = {arm: {str(seed): loss(arm, seed) for seed in SPREAD} for arm in ARMS}
    reports = {"demo": "demo", study.name: study.name}
    for name, of in reports.items():
        (tmp_path / "reports" / name).mkdir(parents=True)
        (tmp_path / "reports" / name / "report.en.html").write_text(of)
        arms = {arm: {"losses": each} for arm, each in losses.items()}
        (tmp_path / "reports" / name / REPORT_RESULTS).write_text(json.dumps({"study": {"name": of}, "arms": arms}))
    name = board.given.name
    assert views.report_file(board, name, "en").read_text() == study.name
    assert views.report_file(board, name, "zh") is None

    def told() -> bool:
        views.study(board, name, "en")
        for future in list(board._pending.values()):
            future.result()
        found = views.study(board, name, "en")
        assert (found["report"], found["standing"] is not None) == (["en"], True)
        return found["report_is_other"]

    assert told()
    finish_the_last(study, folder)
    board.watch(name)._listed_at = float("-inf")  # as seconds later
    assert not told()
    (tmp_path / "reports" / study.name / REPORT_RESULTS).write_text("[]")
    assert views.report_file(board, name, "en") is None


def test_every_card_of_an_incomplete_study_says_so(tmp_path):
    claims = [hypothesis("not_worse"), hypothesis("fewer_parameters")]
    study = small_study(arms=[*ARMS, "frozen_normal"], seeds=[0, 1, 2, 3], hypotheses=claims)
    store_study(study, tmp_path / "small", lambda arm, seed, *_: None if arm == "frozen_normal" else loss(arm, seed))
    board = board_of(study, tmp_path / "small")
    views.study(board, board.given.name, "en")
    for future in list(board._pending.values()):
        future.result()
    cards = views.study(board, board.given.name, "en")["standing"]["cards"]
    assert ["may still change" in each["incomplete"] for each in cards] == [True, False]
    assert all(each["incomplete"].startswith("The study is not complete.") for each in cards)
