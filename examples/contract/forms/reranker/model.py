"""Contract model: orders texts by how many letters they share with the query, in the shape of @cf/baai/bge-reranker-base."""


def handle_request(request, context):
    asked = request.body.json
    wanted = set(asked["query"].lower())
    scores = [len(wanted & set(each["text"].lower())) / len(wanted) for each in asked["contexts"]]
    best = sorted(range(len(scores)), key=lambda number: -scores[number])[: asked.get("top_k")]
    return {"response": [{"id": number, "score": round(scores[number], 4)} for number in best]}
