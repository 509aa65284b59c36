package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execOutputMax is how much of each of a command's two outputs is handed on, in bytes. Probes and
// hooks show no more of it, and containerd sends up to 16 MiB.
const execOutputMax = 10 << 10

// execSync runs a command in a container and waits for its end. The request's own timeout, in
// whole seconds, is the runtime's to keep: only that one ends the command. The deadline of the
// effect only ends the waiting.
func (p *Port) execSync(ctx context.Context, m *runtimeapi.ExecSyncRequest) (any, error) {
	answer, err := p.runtime.ExecSync(ctx, m)
	if err != nil {
		return nil, err
	}
	answer.Stdout = cut(answer.Stdout)
	answer.Stderr = cut(answer.Stderr)
	return answer, nil
}

// cut copies what is kept, so that the rest is not.
func cut(output []byte) []byte {
	if len(output) <= execOutputMax {
		return output
	}
	return append([]byte(nil), output[:execOutputMax]...)
}
