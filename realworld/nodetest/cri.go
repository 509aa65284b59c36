package nodetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Dial returns a client connection to a CRI endpoint ("unix:///…"). It does not wait for the
// server, and reconnects within a second after an interruption.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	often := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: often, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", endpoint, err)
	}
	return conn, nil
}

// CheckReady returns an error if the runtime behind a client is not ready to run pods.
func CheckReady(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := client.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range answer.GetStatus().GetConditions() {
		needed := c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady
		if needed && !c.Status {
			return fmt.Errorf("%s is false: %s", c.Type, c.Message)
		}
	}
	return nil
}

// RemovePods stops and removes every pod of a runtime, with a grace period of zero.
func RemovePods(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
	answer, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var problems []error
	for _, pod := range answer.Items {
		stop := &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.Id}
		if _, err := client.StopPodSandbox(ctx, stop); err != nil {
			problems = append(problems, fmt.Errorf("stopping pod %s: %w", pod.Metadata.Name, err))
			continue
		}
		remove := &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.Id}
		if _, err := client.RemovePodSandbox(ctx, remove); err != nil {
			problems = append(problems, fmt.Errorf("removing pod %s: %w", pod.Metadata.Name, err))
		}
	}
	return errors.Join(problems...)
}
