package host

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha512"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// makeKey makes a private key, drawn as the call's latency is. There are no RSA keys: making one
// takes seconds.
func (h *Host) makeKey(call *wire.Call, m *world.MakeKey) {
	seed := sha512.Sum512(binary.BigEndian.AppendUint64([]byte(m.Type), call.Draw()))
	key := keyOf(m.Type, seed[:])
	if key == nil {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "unknown key type %q", m.Type))
		return
	}
	// Without a source of randomness the signature follows from the key (RFC 6979).
	request, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, key)
	if err != nil {
		panic("host: " + err.Error())
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic("host: " + err.Error())
	}
	made := &world.KeyMade{Request: request,
		PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
	h.opts.Truth.Add(truth.Fact{Time: h.opts.Agenda.Now(), Kind: truth.KeyMade,
		Token: made.PrivateKey})
	call.Reply(made)
}

// keyOf returns the key of a type that follows from a seed of 64 bytes; nil for any other type.
func keyOf(keyType string, seed []byte) crypto.Signer {
	var curve elliptic.Curve
	switch keyType {
	case "ED25519":
		return ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize])
	case "ECDSAP256":
		curve = elliptic.P256()
	case "ECDSAP384":
		curve = elliptic.P384()
	case "ECDSAP521":
		curve = elliptic.P521()
	default:
		return nil
	}
	// A number below 2^248 is less than the order of each curve.
	raw := make([]byte, (curve.Params().BitSize+7)/8)
	copy(raw[len(raw)-31:], seed)
	key, err := ecdsa.ParseRawPrivateKey(curve, raw)
	if err != nil {
		panic("host: " + err.Error())
	}
	return key
}
