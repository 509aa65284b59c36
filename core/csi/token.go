package csi

import (
	"encoding/json"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// tokensFor returns what a driver gets of tokens for a pod: an empty map if it asks for none, nil
// while they are requested. The time is when to plan again.
func (n *Node) tokensFor(v *Volume, u *Use, d *storagev1.CSIDriver,
	env *Env) (map[string]string, time.Time, error) {
	if d == nil || len(d.Spec.TokenRequests) == 0 {
		return map[string]string{}, time.Time{}, nil
	}
	if len(d.Spec.TokenRequests) > budget.TokensMax {
		return nil, time.Time{}, budget.Tokens.Errorf("driver %s asks for %d tokens, and can have %d",
			v.Driver, len(d.Spec.TokenRequests), budget.TokensMax)
	}
	if p := v.Publications[u.target()]; p == nil || p.State != Done { // a pod keeps what it has
		others := n.tokensOfOthers(v, u, env)
		if others+len(d.Spec.TokenRequests) > budget.DriverTokensMax {
			return nil, time.Time{}, budget.DriverTokens.Errorf("driver %s asks for %d tokens, and other "+
				"volumes of the pod have %d: together more than %d", v.Driver, len(d.Spec.TokenRequests),
				others, budget.DriverTokensMax)
		}
	}
	pod := tokenPod(u, d)
	wake := u.Tokens.Plan(pod, VolumeKey(v.name()), subjectToken+u.target(),
		func(string, time.Duration) time.Duration { return 0 }, env.Effects)
	granted := map[string]authenticationv1.TokenRequestStatus{}
	for i := range pod.Spec.Volumes[0].Projected.Sources {
		projection := pod.Spec.Volumes[0].Projected.Sources[i].ServiceAccountToken
		value, expiresAt, problem := u.Tokens.Current(projection, env.Effects.Now())
		switch {
		case problem != "":
			return nil, wake, errors.New("kubernetes.io/csi: mounter.SetUpAt failed to get service " +
				"accoount token attributes: " + problem)
		case value == "":
			return nil, wake, nil
		}
		granted[projection.Audience] = authenticationv1.TokenRequestStatus{Token: value,
			ExpirationTimestamp: metav1.NewTime(env.Effects.DateOf(expiresAt))}
	}
	text, err := json.Marshal(granted)
	if err != nil {
		return nil, wake, err
	}
	return map[string]string{world.CSITokensKey: string(text)}, wake, nil
}

// tokensOfOthers returns how many tokens the drivers of the other volumes of a pod have, or have
// asked for. One that an earlier agent has published counts as well.
func (n *Node) tokensOfOthers(v *Volume, u *Use, env *Env) (count int) {
	for _, name := range n.Owners[u.UID] {
		other := n.Volumes[name]
		if other == v {
			continue
		}
		tokens := 0
		for _, use := range other.Uses { //ordered: a sum
			if use.UID == u.UID {
				tokens += len(use.Tokens.Tokens)
			}
		}
		d, _ := env.driverObject(other.Driver)
		for _, p := range other.Publications { //ordered: a maximum
			if d != nil && p.UID == u.UID && p.State != "" {
				tokens = max(tokens, len(d.Spec.TokenRequests))
			}
		}
		count += tokens
	}
	return count
}

// tokenPod returns a pod with the tokens that a driver asks for, as package token takes them.
func tokenPod(u *Use, d *storagev1.CSIDriver) *v1.Pod {
	var sources []v1.VolumeProjection
	for _, request := range d.Spec.TokenRequests {
		sources = append(sources, v1.VolumeProjection{
			ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Audience: request.Audience, ExpirationSeconds: request.ExpirationSeconds}})
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: u.PodName, UID: types.UID(u.UID)},
		Spec: v1.PodSpec{ServiceAccountName: u.ServiceAccount, Volumes: []v1.Volume{{
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}}},
	}
}
