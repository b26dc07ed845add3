import numpy as np


def handle_request(request, context):
    values = np.asarray(request.body.json.get("values", [1, 2, 3]), dtype=np.float64)
    # np.float_ went with numpy 2.
    return {"numpy": np.__version__, "has_float_": "float_" in dir(np), "mean": float(values.mean()), "pid": context.pid}
