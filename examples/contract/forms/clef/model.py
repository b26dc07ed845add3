"""Contract model: says no, takes the first choice and the lowest score, in the shape of @cf/cloudflare/clef."""


def handle_request(request, context):
    asked = request.body.json

    def answer(question):
        if question["type"] == "choice":
            return next(iter(question.get("criteria") or {}), None)
        return 0 if question["type"] == "score" else False

    answers = {name: answer(question) for name, question in asked["questions"].items()}
    return {
        "model": asked.get("model") or "clef",
        "answers": answers,
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
