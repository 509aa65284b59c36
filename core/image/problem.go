package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"seedlet.dev/core/budget"
)

// The reasons of container statuses for an image that is not available. The runtime reports the
// last two at the beginning of its error (k8s.io/cri-api/pkg/errors).
const (
	ErrInvalidImageName = "InvalidImageName"
	ErrImageNeverPull   = "ErrImageNeverPull"
	ErrImageInspect     = "ImageInspectError"
	ErrImagePull        = "ErrImagePull"
	ErrImagePullBackOff = "ImagePullBackOff"

	errRegistry  = "RegistryUnavailable"
	errSignature = "SignatureValidationFailed"
)

// Problem is why an image is not available, in the words of container statuses.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// For pulls: the error of the newest one, its reason, and the number of consecutive failures.
	Cause      string `json:"cause,omitempty"`
	PullReason string `json:"pullReason,omitempty"`
	Failures   int    `json:"failures,omitempty"`
}

// quotedMax is how much the message about a reference that is too long quotes, in bytes.
const quotedMax = 64

// checkReference returns the problem of a reference that is invalid; nil if it is valid. One that
// is too long is not parsed.
func checkReference(ref string) *Problem {
	if len(ref) > budget.ImageReferenceMax {
		return &Problem{Reason: ErrInvalidImageName, Message: fmt.Sprintf("Failed to apply default "+
			"image tag \"%s...\": the reference has %d bytes, and one may have %d",
			budget.Cut(ref, quotedMax), len(ref), budget.ImageReferenceMax)}
	}
	if _, err := reference.ParseNormalizedNamed(ref); err != nil {
		return &Problem{Reason: ErrInvalidImageName, Message: fmt.Sprintf(
			"Failed to apply default image tag %q: couldn't parse image name %[1]q: %v", ref, err)}
	}
	return nil
}

// inspectProblem returns the problem of an image that cannot be inspected.
func inspectProblem(ref, cause string) *Problem {
	return &Problem{Reason: ErrImageInspect,
		Message: fmt.Sprintf("Failed to inspect image %q: %s", ref, cause)}
}

// intentProblem returns the problem of an image whose pull cannot be recorded, and so not begin.
func intentProblem(ref, cause string) *Problem {
	return &Problem{Reason: ErrImagePull, PullReason: ErrImagePull, Cause: cause, Message: fmt.Sprintf(
		"Failed to record image pull intent for container image %q: %s", ref, cause)}
}

// secretProblem returns the problem of an image that is not pulled, since a secret of the pod
// cannot be decoded.
func secretProblem(cause string) *Problem {
	return &Problem{Reason: ErrImagePull, PullReason: ErrImagePull, Cause: cause, Message: cause}
}

// pullProblem returns the problem of an image after so many failed pulls in a row. Repeated
// failures show as the back-off, with the newest failure. Upstream: evalCRIPullErr in
// pkg/kubelet/images/image_manager.go.
func pullProblem(ref, cause string, failures int) *Problem {
	p := &Problem{Message: cause, Cause: cause, PullReason: ErrImagePull, Failures: failures}
	for reason, text := range map[string]string{ //ordered: at most one is a prefix
		errRegistry: "the registry is unavailable", errSignature: "the signature validation failed",
	} {
		if rest, found := strings.CutPrefix(cause, reason); found {
			p.PullReason = reason
			p.Message = "image pull failed for " + ref + " because " + text + rest
		}
	}
	p.Reason = p.PullReason
	if failures > 1 {
		p.Reason = ErrImagePullBackOff
		p.Message = fmt.Sprintf("Back-off pulling image %q: %s: %s", ref, p.PullReason, p.Message)
	}
	return p
}
