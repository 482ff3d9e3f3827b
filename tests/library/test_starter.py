import subprocess
import sys

from runtime.library.starter import find_starter


def test_starter_model_when_looked_for_then_is_a_gguf_file() -> None:
    path = find_starter()
    assert path is not None
    assert path.read_bytes()[:4] == b"GGUF"


def test_starter_model_when_looked_for_then_its_package_is_not_imported() -> None:
    code = (
        "import sys; from runtime.library.starter import find_starter; assert find_starter(); "
        "print(sorted(name for name in sys.modules if name.startswith(('llm', 'llama_cpp'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
