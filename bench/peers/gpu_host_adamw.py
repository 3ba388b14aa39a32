"""AdamW on the host for parameters on a GPU, in plain PyTorch: what gpu_train.py uses where torchao is not installed.

Each gradient leaves for page-locked memory as soon as it is there, on a stream of its own, and is gone from the GPU; micro-batches
are added up on the host. step() updates one parameter after another by torch's fused AdamW for CPUs and sends it back at
once. Parameters, gradients and states are of the parameters' type."""

import torch


class HostAdamW:
    def __init__(self, parameters, options):
        self.on_gpu = parameters[0].device.type == "cuda"
        self.stream = torch.cuda.Stream() if self.on_gpu else None
        self.parts = [self._part(p, options) for p in parameters]

    def _part(self, parameter, options):
        host = torch.empty(parameter.shape, dtype=parameter.dtype, pin_memory=self.on_gpu)
        host.copy_(parameter.detach())
        host.grad = torch.zeros(parameter.shape, dtype=parameter.dtype, pin_memory=self.on_gpu)
        part = {"device": parameter, "host": host, "optimizer": torch.optim.AdamW([host], fused=True, **options),
                "landing": None, "arrived": None, "fresh": True}
        parameter.register_post_accumulate_grad_hook(lambda _: self._send(part))
        return part

    def _send(self, part):
        """The gradient to the host: over the one there, or into a second array that is added to it once it has landed."""
        host, parameter = part["host"], part["device"]
        self._land(part)
        target = host.grad
        if not part["fresh"]:
            target = part["landing"] = torch.empty(host.shape, dtype=host.dtype, pin_memory=self.on_gpu)
        part["fresh"] = False
        if self.on_gpu:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                target.copy_(parameter.grad, non_blocking=True)
                part["arrived"] = self.stream.record_event()
            parameter.grad.record_stream(self.stream)
        else:
            target.copy_(parameter.grad)
        parameter.grad = None

    @staticmethod
    def _land(part):
        if part["arrived"] is not None:
            part["arrived"].synchronize()
            part["arrived"] = None
        if part["landing"] is not None:
            part["host"].grad.add_(part["landing"])
            part["landing"] = None

    def step(self):
        for part in self.parts:
            self._land(part)
            part["optimizer"].step()
            with torch.no_grad():
                part["device"].copy_(part["host"], non_blocking=True)
            part["fresh"] = True

    def zero_grad(self, set_to_none=True):
        """Gradients have left the device already."""
