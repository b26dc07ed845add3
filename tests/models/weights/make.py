"""Small models in TensorFlow's formats. Runs in the environment of the classifier: python make.py FOLDER"""

import sys
from pathlib import Path

import tensorflow as tf


def main(folder: Path) -> None:
    double = tf.Module()
    double.factor = tf.Variable(2.0, name="factor")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x"), tf.TensorSpec([None], tf.int64, name="n")])
    def serve(x, n):
        return {"y": x * double.factor, "rows": n + 1}

    double.serve = serve
    tf.saved_model.save(double, str(folder / "double" / "weights"), signatures={"serving_default": serve})

    words = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def upper(words):
        return {"upper": tf.strings.upper(words), "length": tf.strings.length(words)}

    words.upper = upper
    tf.saved_model.save(words, str(folder / "words" / "weights"), signatures={"only": upper})

    two = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def one(x):
        return {"y": x}

    two.one = one
    tf.saved_model.save(two, str(folder / "nameless" / "weights"), signatures={"a": one, "b": one})

    a = tf.keras.Input((3,), name="a")
    b = tf.keras.Input((3,), name="b")
    total = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="total")(tf.keras.layers.Add()([a, b]))
    first = tf.keras.layers.Cropping1D((0, 2), name="first")(tf.keras.layers.Reshape((3, 1))(a))
    (folder / "sum").mkdir()
    tf.keras.Model([a, b], [total, first]).save(folder / "sum" / "model.keras")

    (folder / "named").mkdir()
    outputs = {"half": tf.keras.layers.Rescaling(0.5)(a), "same": tf.keras.layers.Flatten()(a)}
    tf.keras.Model(a, outputs).save(folder / "named" / "model.keras")

    (folder / "row").mkdir()
    layers = [tf.keras.Input((2,), name="in"), tf.keras.layers.Rescaling(3.0, name="out")]
    tf.keras.Sequential(layers).save(folder / "row" / "model.keras")

    (folder / "lambda").mkdir()
    tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Lambda(lambda x: x + 1)]).save(folder / "lambda" / "model.keras")

    (folder / "lite").mkdir()
    (folder / "lite" / "triple.tflite").write_bytes(converter(lambda x: x * 3.0, [None, 2]).convert())

    (folder / "quantised").mkdir()
    ones = tf.ones((3, 1))
    quantised = converter(lambda x: tf.matmul(x, ones), [1, 3])
    quantised.optimizations = [tf.lite.Optimize.DEFAULT]
    # What the inputs look like decides the scales: -1 to 1 in 256 steps.
    quantised.representative_dataset = lambda: ([tf.constant([[sign, sign, 0.0]])] for sign in (-1.0, 1.0) for _ in range(8))
    quantised.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    quantised.inference_input_type = quantised.inference_output_type = tf.uint8
    (folder / "quantised" / "sum.tflite").write_bytes(quantised.convert())


def converter(compute, shape):
    """Of a function of one tensor of floats to TensorFlow Lite."""
    module = tf.Module()
    module.compute = tf.function(compute, input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
    return tf.lite.TFLiteConverter.from_concrete_functions([module.compute.get_concrete_function()], module)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
