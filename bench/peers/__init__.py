"""The scoreboard: what becomes of one effect in each runtime when something dies, measured with those runtimes.

    make peers                          installs each runtime into a venv of its own, measures, writes the page
    make peers ARGS=--timings           only the timed part: repeat it alone on a quiet machine
    make peers ARGS="--only dbos-sqlite" one runtime, into the same results

Nothing here is needed to use or to test poimen: a test runs the same runner over poimen and over a runtime that is
naive on purpose, and installs nothing.
"""
