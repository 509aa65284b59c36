package plan

import (
	"fmt"
	"slices"
)

// Signer is a controller of the cluster that answers the requests for certificates of pods
// (PodCertificateRequests) for one name of a signer.
type Signer struct {
	Name string `json:"name"`
	// Within is how long an answer takes at most.
	Within Duration `json:"within,omitempty"`
	// Answer is the condition that a request gets: Issued, if empty, Denied, Failed, or None for no
	// answer. Renewal is the same for further requests of a pod; empty: as Answer.
	Answer  string `json:"answer,omitempty"`
	Renewal string `json:"renewal,omitempty"`
	// Deleted is the share of the requests that a user deletes before they are answered.
	Deleted float64 `json:"deleted,omitempty"`
	// Replaced is the share of the others that a user replaces, before they are answered, by requests
	// of the same names for a key of his own.
	Replaced float64 `json:"replaced,omitempty"`
	// AwayFrom and AwayFor are when the signer gives no answers, and for how long.
	AwayFrom Duration `json:"awayFrom,omitempty"`
	AwayFor  Duration `json:"awayFor,omitempty"`
}

// IsAway reports whether the signer gives no answers at a time of the run.
func (s *Signer) IsAway(at Duration) bool { return s.AwayFrom <= at && at < s.AwayFrom+s.AwayFor }

// The answers of signers.
const (
	SignerIssues = "Issued"
	SignerDenies = "Denied"
	SignerFails  = "Failed"
	SignerSilent = "None"
)

// AnswerTo returns the condition that a request of a pod gets: its first one, or another one.
func (s *Signer) AnswerTo(isFirst bool) string {
	switch {
	case !isFirst && s.Renewal != "":
		return s.Renewal
	case s.Answer != "":
		return s.Answer
	}
	return SignerIssues
}

func validateSigners(signers []Signer) error {
	answers := []string{"", SignerIssues, SignerDenies, SignerFails, SignerSilent}
	for i, s := range signers {
		switch {
		case s.Name == "":
			return fmt.Errorf("spec.signers[%d].name: want a name, have none", i)
		case !slices.Contains(answers, s.Answer) || !slices.Contains(answers, s.Renewal):
			return fmt.Errorf("spec.signers[%d]: want answers Issued, Denied, Failed or None, have %q "+
				"and %q", i, s.Answer, s.Renewal)
		case s.Within < 0 || s.Deleted < 0 || s.Deleted > 1 || s.Replaced < 0 || s.Replaced > 1:
			return fmt.Errorf("spec.signers[%d]: want within of 0s or more, and deleted and replaced of 0 "+
				"to 1", i)
		case s.AwayFrom < 0 || s.AwayFor < 0:
			return fmt.Errorf("spec.signers[%d]: want awayFrom and awayFor of 0s or more", i)
		}
	}
	return nil
}
