package host

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha512"
	"crypto/x509"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// rsaKeys are the keys of the types RSA3072 and RSA4096, of which making one takes seconds: all
// requests of a type have the same. They are for simulations only.
//
//go:embed keys
var rsaKeys embed.FS

// makeKey makes a private key, drawn as the call's latency is. Requests of equal RSA keys differ by
// a name that is drawn.
func (h *Host) makeKey(call *wire.Call, m *world.MakeKey) {
	seed := sha512.Sum512(binary.BigEndian.AppendUint64([]byte(m.Type), call.Draw()))
	key := keyOf(m.Type, seed[:])
	if key == nil {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "unknown key type %q", m.Type))
		return
	}
	// Without a source of randomness the signature follows from the key (RFC 6979).
	template := &x509.CertificateRequest{}
	if m.IsSlow() {
		template.DNSNames = []string{hex.EncodeToString(seed[:8])}
	}
	request, err := x509.CreateCertificateRequest(nil, template, key)
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
		return rsaKeyOf(keyType)
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

// rsaKeyOf returns the key of a type of RSA keys; nil for any other type.
func rsaKeyOf(keyType string) crypto.Signer {
	text, err := rsaKeys.ReadFile("keys/" + keyType + ".pem")
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		panic("host: " + err.Error())
	}
	return key.(crypto.Signer)
}
