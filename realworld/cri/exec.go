package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execOutputMax bounds each of a command's two outputs, in bytes. Probes and hooks use no more of
// them, and containerd sends up to 16 MiB.
const execOutputMax = 10 << 10

// execSync runs a command in a container and waits for its end. The request's timeout, in whole
// seconds, is enforced by the runtime, and only that timeout ends the command. The deadline of the
// effect only ends the call.
func (p *Port) execSync(ctx context.Context, m *runtimeapi.ExecSyncRequest) (any, error) {
	response, err := p.runtime.ExecSync(ctx, m)
	if err != nil {
		return nil, err
	}
	response.Stdout = truncate(response.Stdout)
	response.Stderr = truncate(response.Stderr)
	return response, nil
}

// truncate copies the start of a long output, so that the rest can be freed.
func truncate(output []byte) []byte {
	if len(output) <= execOutputMax {
		return output
	}
	return append([]byte(nil), output[:execOutputMax]...)
}
