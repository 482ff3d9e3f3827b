from runtime.worker.llama_log import MAX_LINES, LlamaLog

INFO, WARN, ERROR, DEBUG, CONT = 2, 3, 4, 1, 5


def test_when_lines_come_in_pieces_then_whole_ones_are_kept() -> None:
    log = LlamaLog()
    log._on_text(INFO, b"load: half", None)
    log._on_text(CONT, b" and half\nnext", None)
    assert log.lines() == ("load: half and half",)
    log._on_text(CONT, b" one\n....\n", None)
    assert log.lines() == ("load: half and half", "next one")


def test_when_there_are_errors_then_they_are_the_reason_and_else_the_last_line() -> None:
    log = LlamaLog()
    log._on_text(INFO, b"a: fine\n", None)
    assert log.reason() == "a: fine"
    log._on_text(ERROR, b"load: tensor x is missing\n", None)
    log._on_text(INFO, b"b: afterwards\n", None)
    assert log.reason() == "tensor x is missing"
    log.clear()
    assert (log.lines(), log.reason()) == ((), "")


def test_when_too_much_is_printed_then_only_the_last_lines_are_kept() -> None:
    log = LlamaLog()
    for number in range(MAX_LINES + 10):
        log._on_text(INFO, b"line %d\n" % number, None)
    log._on_text(DEBUG, b"detail\n", None)
    assert len(log.lines()) == MAX_LINES
    assert log.lines()[0] == "line 10"


def test_when_sizes_are_printed_then_they_are_added_up() -> None:
    log = LlamaLog()
    log._on_text(INFO, b"llama_kv_cache: size =   18.00 MiB (  2048 cells,  30 layers,  4/1 seqs), K (f16)\n", None)
    log._on_text(INFO, b"llama_memory_recurrent: size =    2.00 MiB (     4 cells)\n", None)
    log._on_text(INFO, b"sched_reserve:        CPU compute buffer size =    17.50 MiB\n", None)
    assert log.cache_bytes() == 20 * 1024 * 1024
    assert log.compute_bytes() == 17.5 * 1024 * 1024
