"""What the OpenAPI document says of Ollama's routes and of llama-server's own."""

from runtime.host.api.native import (
    DetokenizedText,
    NativeCompletion,
    Props,
    RankedText,
    Ranking,
    RenderedPrompt,
    SlotState,
    TokenList,
)
from runtime.host.api.native_adapters import AdapterRow, Changed, Scales
from runtime.host.api.native_request import (
    DetokenizeBody,
    InfillBody,
    NativeCompletionBody,
    RerankBody,
    TokenizeBody,
)
from runtime.host.api.ollama_answer import (
    NDJSON,
    OllamaChatAnswer,
    OllamaEmbedAnswer,
    OllamaEmbeddingsAnswer,
    OllamaError,
    OllamaTextAnswer,
)
from runtime.host.api.ollama_models import (
    OllamaCopyBody,
    OllamaNameBody,
    OllamaProcesses,
    OllamaPullBody,
    OllamaShown,
    OllamaStatus,
    OllamaTags,
    OllamaVersion,
)
from runtime.host.api.ollama_request import (
    OllamaChatBody,
    OllamaEmbedBody,
    OllamaEmbeddingsBody,
    OllamaGenerateBody,
)
from runtime.host.api.openai_request import ChatBody
from runtime.host.api.operations import Operation

RankedAnswer = Ranking | tuple[RankedText, ...]

OLLAMA_OPERATIONS = (
    Operation("get", "/", "A greeting that Ollama's clients look for.", answer=str, content="text/plain"),
    Operation("get", "/api/version", "The release of Ollama whose API this is.", answer=OllamaVersion),
    Operation("get", "/api/tags", "Installed models and their further names.", answer=OllamaTags),
    Operation("get", "/api/ps", "Loaded models.", answer=OllamaProcesses),
    Operation("post", "/api/show", "What a model is and can.", OllamaNameBody, OllamaShown),
    Operation(
        "post", "/api/pull", "Fetch hf.co/owner/repo:QUANT from the hub.", OllamaPullBody, OllamaStatus, streams=NDJSON
    ),
    Operation("post", "/api/copy", "Give a model one more name.", OllamaCopyBody),
    Operation("delete", "/api/delete", "Take a further name away, or move a model to the trash.", OllamaNameBody),
    Operation(
        "post",
        "/api/chat",
        "Chat; lines of JSON unless `stream` is false. Options of loading are ignored.",
        OllamaChatBody,
        OllamaChatAnswer,
        streams=NDJSON,
    ),
    Operation(
        "post",
        "/api/generate",
        "Answer a prompt, or with `suffix` fill in the middle.",
        OllamaGenerateBody,
        OllamaTextAnswer,
        streams=NDJSON,
    ),
    Operation("post", "/api/create", "Not served: 501 with a sentence.", OllamaNameBody, OllamaError, 501),
    Operation("post", "/api/push", "Not served: 501 with a sentence.", OllamaNameBody, OllamaError, 501),
    Operation("post", "/api/blobs/{digest}", "Not served: 501 with a sentence.", answer=OllamaError, status=501),
    Operation("head", "/api/blobs/{digest}", "Whether a file was sent before: 404, never.", status=404),
    Operation("post", "/api/embed", "Vectors of texts.", OllamaEmbedBody, OllamaEmbedAnswer),
    Operation("post", "/api/embeddings", "The vector of one text.", OllamaEmbeddingsBody, OllamaEmbeddingsAnswer),
)

NATIVE_OPERATIONS = (
    Operation("post", "/tokenize", "Tokens of a text.", TokenizeBody, TokenList),
    Operation("post", "/detokenize", "Text of tokens.", DetokenizeBody, DetokenizedText),
    Operation("post", "/apply-template", "The prompt of a conversation as text.", ChatBody, RenderedPrompt),
    Operation(
        "post", "/completion", "Go on from a text, in llama-server's form.", NativeCompletionBody, NativeCompletion
    ),
    Operation("post", "/infill", "What stands between two pieces of code.", InfillBody, NativeCompletion),
    *(
        Operation(
            "post",
            path,
            "Rank documents by a query; needs a rerank model. A plain list for `texts`, else Jina's and Cohere's form.",
            RerankBody,
            RankedAnswer,
        )
        for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank")
    ),
    Operation("get", "/lora-adapters", "Adapters of a loaded model.", answer=tuple[AdapterRow, ...]),
    Operation("post", "/lora-adapters", "How strongly they are applied from now on.", Scales, Changed),
    Operation("get", "/props", "Properties of a loaded model.", answer=Props),
    Operation("get", "/slots", "Slots of the loaded models.", answer=tuple[SlotState, ...]),
    Operation("post", "/slots/{slot_id}", "Refused: prompts are stored and fetched without being told."),
)
