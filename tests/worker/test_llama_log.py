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


def test_when_sizes_are_printed_then_they_are_kept_by_buffer() -> None:
    log = LlamaLog()
    for line in (
        b"load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",
        b"load_tensors: RPC0[127.0.0.1:50052] model buffer size =    10.00 MiB",
        b"llama_context:        CPU  output buffer size =     1.50 MiB",
        b"llama_kv_cache:        CPU KV buffer size =   264.00 MiB",
        b"llama_kv_cache: size =  264.00 MiB ( 12032 cells,  30 layers,  8/1 seqs), K (f16):  132.19 MiB",
        b"llama_memory_recurrent:      CUDA0 RS buffer size =     2.00 MiB",
        b"sched_reserve:        CPU compute buffer size =    17.50 MiB",
    ):
        log._on_text(INFO, line + b"\n", None)
    mib = 1024 * 1024
    assert dict(log.sizes("model")) == {"CPU_Mapped": int(92.1 * mib), "RPC0[127.0.0.1:50052]": 10 * mib}
    assert log.sizes("cache") == (("CPU", 264 * mib), ("CUDA0", 2 * mib))
    assert log.sizes("compute") == (("CPU", int(17.5 * mib)),)
    assert log.sizes("output") == (("CPU", int(1.5 * mib)),)


def test_when_layers_are_assigned_then_their_devices_stay_for_the_next_context() -> None:
    log = LlamaLog()
    log._on_text(DEBUG, b"load_tensors: layer   0 assigned to device CPU, is_swa = 0\n", None)
    log._on_text(DEBUG, b"load_tensors: layer   1 assigned to device RPC0, is_swa = 1\n", None)
    log._on_text(INFO, b"load_tensors:   CPU_REPACK model buffer size =     1.00 MiB\nother line\n", None)
    log.clear(keep_model=True)
    assert log.layer_devices() == {0: "CPU", 1: "RPC0"}
    assert log.sizes("model") == (("CPU_REPACK", 1024 * 1024),)
    assert len(log.lines()) == 1
    log.clear()
    assert log.layer_devices() == {}
