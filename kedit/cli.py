"""The command line: each command reads its arguments, calls one function of the library, and prints what came back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit import __version__
from kedit.commands.compare import compare
from kedit.commands.diagnose import diagnose
from kedit.commands.edit import edit
from kedit.commands.export import export
from kedit.commands.figures import figures
from kedit.commands.fitted import editors_of, folders, make
from kedit.commands.fitted import load as load_fitted
from kedit.commands.judge import judge
from kedit.commands.matrix import matrix
from kedit.commands.play import play
from kedit.commands.reproduce import reproduce
from kedit.commands.retention import retention
from kedit.commands.router import router
from kedit.commands.score import score
from kedit.commands.shared import (
    backbone_option,
    batch_size_option,
    benchmark_option,
    benchmark_options,
    clear_errors,
    failures,
    fitted_option,
    known_settings,
    known_tasks,
    left_out,
    loading_options,
    mapping_option,
    max_new_tokens_option,
    of_editors,
    run_bars,
    set_option,
    split,
)
from kedit.commands.tracking import track_option
from kedit.commands.zoo import zoo
from kedit.errors import DataError, StoreError

if TYPE_CHECKING:
    pass


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kedit")
def main() -> None:
    """Insert, edit and measure knowledge in vision-language models.

    Start with:  kedit run --limit 5 --out runs/first   then   kedit report runs/first
    """


# -- run and report ------------------------------------------------------------------------------------------------------


@main.command()
@backbone_option
@benchmark_option
@mapping_option
@click.option(
    "--editors",
    default="base,finetune,lora,ike,mend,serac,mscke,mcki",
    show_default=True,
    callback=split,
    help="Comma-separated: short names, module:Class or file.py:Class. The do-nothing row is always there.",
)
@click.option(
    "--protocols",
    "tasks",
    callback=split,
    help="Comma-separated tasks of the benchmark, such as single,sequential; if left out all but long ones such as lifelong.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases per task; all if left out.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run; an unfinished one is continued.")
@set_option
@fitted_option
@click.option("--seed", default=0, show_default=True)
@max_new_tokens_option
@batch_size_option
@loading_options
@click.option("--plain", is_flag=True, help="One request at a time, no caches: the same answers, slowly.")
@click.option(
    "--legacy-metrics",
    is_flag=True,
    help="Also measure what older papers report: token accuracy, top-k locality (teacher-forced).",
)
@track_option
@clear_errors
def run(
    backbone: str,
    benchmark: str,
    mapping: dict[str, str],
    editors: tuple[str, ...] | None,
    tasks: tuple[str, ...] | None,
    limit: int | None,
    out: Path,
    settings: tuple[str, ...],
    fitted: tuple[str, ...],
    seed: int,
    max_new_tokens: int,
    plain: bool,
    legacy_metrics: bool,
    track: tuple[str, ...] | None,
    **loading: Any,
) -> None:
    """Insert knowledge with several editors, ask, and record every answer.

    The same command again continues an unfinished run and does nothing to a finished one. Look at it with `kedit report`.
    Of a long chain (--protocols lifelong) --set also takes its options, such as lifelong.chain=200 or lifelong.order=blocks.
    """
    from kedit.benchmarks import benchmark as find_benchmark

    names = editors or ()
    places = folders(fitted, names)
    chosen = editors_of(names, of_editors(settings), backbone, places)
    cases = find_benchmark(benchmark, **benchmark_options(mapping, settings))
    known_tasks(tasks, cases)

    from kedit.backbone import load_backbone
    from kedit.evaluate import evaluate
    from kedit.tracking import open_trackers

    tracker = open_trackers(track or (), out / "tracking")
    model = load_backbone(backbone, **loading)
    load_fitted(chosen, names, places, model)
    with run_bars() as progress:
        done = evaluate(
            chosen,
            model,
            cases,
            tasks=tasks,
            limit=limit,
            out=out,
            seed=seed,
            max_new_tokens=max_new_tokens,
            plain=plain,
            legacy=legacy_metrics,
            progress=progress,
            tracker=tracker,
        )
    for line in (*left_out(cases), *failures(done)):
        click.echo(line, err=True)
    if not done.records():
        why = f"all {len(done.failures)} failed" if done.failures else f"{cases.name} holds no case of {', '.join(done.tasks)}"
        raise click.ClickException(f"nothing was answered: {why}")
    click.echo(f"{len(done.records())} records in {out}. Next: kedit report {out}")


@main.command()
@click.argument("editor")
@backbone_option
@benchmark_option
@mapping_option
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to save to; an unfinished training goes on.")
@click.option("--limit", type=click.IntRange(min=1), help="Raw cases of the train split; all if left out.")
@click.option(
    "--val-share",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of these that is held out to validate with, as whole scenarios where there are several.",
)
@set_option
@click.option("--seed", default=0, show_default=True)
@track_option
@loading_options
@clear_errors
def train(
    editor: str,
    backbone: str,
    benchmark: str,
    mapping: dict[str, str],
    out: Path,
    limit: int | None,
    val_share: float,
    settings: tuple[str, ...],
    seed: int,
    track: tuple[str, ...] | None,
    **loading: Any,
) -> None:
    """Fit an editor (short name, module:Class or file.py:Class) on the train split and save what it learned.

    How it trains are parameters of the editor, set with --set; `kedit editors` lists them. The same command again
    continues an unfinished training. On several processes: accelerate launch -m kedit.cli train EDITOR ...
    Use the result with kedit run --fitted EDITOR=OUT.
    """
    from kedit.benchmarks import benchmark as find_benchmark
    from kedit.commands import train as training

    known_settings(settings, (editor,))
    chosen = training.make(editor, settings, backbone, seed)
    found = find_benchmark(benchmark, **benchmark_options(mapping))
    held = training.cases(found, limit, val_share, seed)

    from kedit.backbone import load_backbone
    from kedit.tracking import open_trackers

    tracker = open_trackers(track or (), out / training.TRAINING / "tracking")
    model = load_backbone(backbone, **{**loading, "device": training.device(loading["device"])})
    for line in training.fit(chosen, model, found, held, out, tracker=tracker, limit=limit, seed=seed, share=val_share):
        click.echo(line)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write; FOLDER/report if left out.")
@click.option("--judge", help="Show a judge's scores in place of ROUGE-L: its id, or a beginning that only one has.")
@click.option("--kind", help="What the judge was asked, where it was asked several things: score or three-way.")
@click.option("--format", "formats", callback=split, help="Comma-separated further forms: latex, parquet (records with scores).")
@clear_errors
def report(folder: Path, out: Path | None, judge: str | None, kind: str | None, formats: tuple[str, ...] | None) -> None:
    """Print a run's tables and write CSV, Markdown, curves (PNG, SVG) and one HTML page."""
    from kedit.report import report as make
    from kedit.report import run_text
    from kedit.run import Run

    found = Run.load(folder)
    judged = None
    if judge is not None:
        from kedit.judging import judge_scoring

        judged = judge_scoring(found, judge, kind)
    click.echo(run_text(found, judged))
    written = make(found, out, judged=judged, formats=formats or ())
    click.echo(f"Written to {written.folder}; open {written.page}")


# -- data ----------------------------------------------------------------------------------------------------------------


@main.group()
def data() -> None:
    """Benchmarks: what there is, what it holds, and whether a folder of files is sound."""


@data.command("list")
@clear_errors
def data_list() -> None:
    """The benchmarks that kedit knows by name."""
    from kedit.benchmarks import BENCHMARKS, summary

    for name in BENCHMARKS:
        click.echo(f"{name:15} {summary(name)}")


@data.command("info")
@click.argument("benchmark")
@mapping_option
@clear_errors
def data_info(benchmark: str, mapping: dict[str, str]) -> None:
    """Name, revision, tasks, dimensions and numbers of cases of a benchmark."""
    from kedit.benchmarks import benchmark as find

    found = find(benchmark, **benchmark_options(mapping))
    click.echo(f"{found.name}  revision {found.revision[:12]}")
    for name, task in found.tasks.items():
        labels = ", ".join(dimension.label for dimension in task.dimensions)
        click.echo(f"  {name}: {len(found.cases(name))} cases, protocol {task.protocol.__name__}, {labels}")
    click.echo(f"  train: {len(found.train())} cases")


@data.command("build")
@click.argument("benchmark", default="kibench-open")
@click.option("--cases", default=20, show_default=True, type=click.IntRange(1, 200), help="Raw cases per scenario.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
@clear_errors
def data_build(benchmark: str, cases: int, out: Path) -> None:
    """Write a drawn benchmark as files: JSON lines and pictures, in the layout that kedit also reads."""
    from kedit.benchmarks import buildable

    click.echo(f"written to {buildable(benchmark).build(out, cases=cases)}")


@data.command("check")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--images", type=click.Path(path_type=Path), help="Folder that image paths start from; the data's own if left out.")
@mapping_option
@clear_errors
def data_check(path: Path, images: Path | None, mapping: dict[str, str]) -> None:
    """Say what a folder or file holds and what is wrong with it: every row is read, every image opened, nothing downloaded.

    Exit status: 0 sound, 1 a finding would spoil a measurement, 2 nothing that can be read or recognised.
    """
    from kedit.benchmarks.check import check

    try:
        found = check(path, mapping=mapping, images=images)
    except (DataError, StoreError) as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from error
    click.echo(str(found))
    raise SystemExit(found.status)


@data.command("show")
@click.argument("benchmark", default="kibench-open")
@click.option("--sheet", required=True, type=click.Path(path_type=Path), help="PNG file to write.")
@clear_errors
def data_show(benchmark: str, sheet: Path) -> None:
    """A contact sheet: one picture of every scenario."""
    from kedit.benchmarks import buildable

    click.echo(f"written to {buildable(benchmark).sheet(sheet)}")


# -- editors ----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("spec")
@backbone_option
@clear_errors
def check(spec: str, backbone: str) -> None:
    """Run every promise of the Editor contract against an editor (short name, module:Class or file.py:Class)."""
    from kedit.backbone import load_backbone
    from kedit.testing import check_editor

    click.echo(str(check_editor(make(spec, (), backbone), load_backbone(backbone))))


@main.command()
def editors() -> None:
    """The editors that kedit knows by name, with their parameters and defaults."""
    from kedit.methods import EDITORS, editor

    for name in EDITORS:
        made = editor(name)
        click.echo(f"{name:10} {(type(made).__doc__ or '').splitlines()[0]}\n{'':10} {made!r}")


main.add_command(compare)
main.add_command(diagnose)
main.add_command(figures)
main.add_command(edit)
main.add_command(export)
main.add_command(matrix)
main.add_command(play)
main.add_command(reproduce)
main.add_command(zoo)
main.add_command(retention)
main.add_command(router)
main.add_command(score)
main.add_command(judge)


if __name__ == "__main__":
    main()
