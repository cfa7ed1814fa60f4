"""plants: the server."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.metrics import log_loss

from plants.task import get_model, get_model_params, load_data, set_model_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg, and evaluate on machines of a test bench."""
    model = get_model(context.run_config["penalty"], context.run_config["local-epochs"])
    arrays = ArrayRecord(get_model_params(model))
    X, _, y, _ = load_data(partition_id=1000, num_partitions=1, slot=50, machines=2500)

    def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_model_params(model, arrays.to_numpy_ndarrays())
        loss = log_loss(y, model.predict_proba(X))
        return MetricRecord({"accuracy": model.score(X, y), "loss": loss})

    # Initialize and start FedAvg
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0, min_available_nodes=3)
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )

    last = result.evaluate_metrics_serverapp[context.run_config["num-server-rounds"]]
    print(f"accuracy {last['accuracy']:.3f}, loss {last['loss']:.3f}")
