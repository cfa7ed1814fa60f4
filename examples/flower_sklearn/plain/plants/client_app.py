"""plants: the client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from plants.task import get_model, get_model_params, load_data, set_model_params

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = get_model(context.run_config["penalty"], context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())

    # Load the data
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    slot = msg.content["config"]["server-round"]
    X, _, y, _ = load_data(partition_id, num_partitions, slot)

    # Train the model on local data
    model.fit(X, y)
    loss = log_loss(y, model.predict_proba(X))

    # Construct and return reply message
    metrics = MetricRecord({"num-examples": len(X), "train_loss": loss})
    content = RecordDict({"arrays": ArrayRecord(get_model_params(model)), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = get_model(context.run_config["penalty"], context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())

    # Load the data
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    slot = msg.content["config"]["server-round"]
    _, X, _, y = load_data(partition_id, num_partitions, slot)

    # Construct and return reply message
    loss = log_loss(y, model.predict_proba(X))
    accuracy = model.score(X, y)
    metrics = MetricRecord({"num-examples": len(X), "test_loss": loss, "accuracy": accuracy})
    content = RecordDict({"metrics": metrics})
    return Message(content=content, reply_to=msg)
