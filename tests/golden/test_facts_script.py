"""`.ci/facts`: golden facts change with src only where the changelog says that numbers changed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "facts"
WHO = ["-c", "user.name=a", "-c", "user.email=a@b"]

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None or not SCRIPT.exists(), reason="no git, or not the repository"
)


class Repository:
    def __init__(self, folder):
        self.folder = folder

    def git(self, *words):
        subprocess.run(
            ["git", *WHO, *words], cwd=self.folder, check=True, capture_output=True, text=True
        )

    def write(self, **changes):
        where = {
            "facts": "tests/golden/facts.jsonl",
            "src": "src/module.py",
            "log": "CHANGELOG.md",
            "other": "README.md",
        }
        for name, text in changes.items():
            path = self.folder / where[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, **changes):
        self.write(**changes)
        self.git("add", ".")
        self.git("commit", "-m", "a change")

    def verdict(self, **environment):
        done = subprocess.run(
            [self.folder / ".ci" / "facts"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repository")
    (made.folder / ".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, made.folder / ".ci" / "facts")
    made.git("init", "--initial-branch", "main")
    made.commit(facts="1\n2\n", src="one", log="- First.\n", other="read")
    return made


MOVED = {"facts": "1\n3\n", "src": "two"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (MOVED, 1),
        (MOVED | {"log": "- First.\n- **Numbers changed**: better bounds.\n"}, 0),
        (MOVED | {"log": "- First.\n- Faster.\n"}, 1),
        ({"facts": "1\n3\n", "other": "more"}, 0),
        ({"src": "two"}, 0),
        ({"facts": "1\n2\n3\n", "src": "two"}, 0),  # a new cell
        ({"facts": "1\n", "src": "two"}, 1),
    ],
    ids=["both", "told", "not told", "facts only", "src only", "another cell", "a cell less"],
)
def test_facts_change_with_src_only_where_the_changelog_says_so(repository, changes, code):
    repository.commit(**changes)
    told = repository.verdict()
    assert told[0] == code
    assert ("1 lines of tests/golden/facts.jsonl changed" in told[1]) == bool(code)


def test_a_branch_is_compared_with_where_it_left_main(repository, tmp_path):
    repository.git("checkout", "-b", "branch")
    repository.commit(facts="1\n3\n")
    repository.commit(src="two")
    assert repository.verdict()[0] == 1
    assert repository.verdict(FACTS_BASE="HEAD~1")[0] == 0
    repository.git("clone", "--branch", "branch", ".", str(tmp_path / "fresh"))
    assert Repository(tmp_path / "fresh").verdict()[0] == 1
    repository.write(log="- Numbers changed.\n")  # not committed yet
    assert repository.verdict()[0] == 0


def test_without_an_earlier_commit_there_is_nothing_to_compare(repository):
    assert repository.verdict() == (0, "Facts: no earlier commit to compare with.\n")
