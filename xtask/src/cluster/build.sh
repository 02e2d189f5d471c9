#!/bin/sh
# Makes bin/ with the programs of Kubernetes, and *.tar with the images of containers.
# VERSION: Kubernetes' version. MIRROR: Debian's mirror. PROGRAMS: the directory with larder's programs.
set -e
export GOFLAGS=-mod=mod CGO_ENABLED=0

# The module has no staging modules, which it replaces by directories of its repository. They exist
# as modules of their own, whose versions begin with 0.
build_kubernetes() {
    module=$(go mod download -json "k8s.io/kubernetes@v$VERSION" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    [ -z "$(ls -d kubernetes 2> /dev/null)" ] || chmod -R u+w kubernetes
    rm -rf kubernetes
    cp -r "$module" kubernetes
    chmod -R u+w kubernetes
    rm -f kubernetes/go.work kubernetes/go.work.sum
    sed -i -e '/=> \.\/staging/d' -e "s/^\(\t*k8s\.io\/[a-z-]*\) v0\.0\.0$/\1 v0.${VERSION#1.}/" kubernetes/go.mod
    for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
        (cd kubernetes && go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$VERSION" \
            -o ../unfinished/ "./cmd/$program")
    done
}

build_registrar() {
    rm -rf registrar
    mkdir registrar
    cp registrar.go registrar/main.go
    printf 'module registrar\ngo 1.24\nrequire k8s.io/kubelet v0.%s\n' "${VERSION#1.}" > registrar/go.mod
    (cd registrar && go build -o ../unfinished/registrar .)
}

# image NAME DIRECTORY ENTRY: writes NAME.tar, a Docker archive of one layer.
image() {
    rm -rf archive
    mkdir archive
    tar -C "$2" -cf archive/layer.tar .
    digest=$(sha256sum archive/layer.tar | cut -d ' ' -f 1)
    entry=
    [ -z "$3" ] || entry="\"Entrypoint\":[\"$3\"],"
    printf '{"architecture":"%s","os":"linux","config":{%s"Env":["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},%s}' \
        "$(dpkg --print-architecture)" "$entry" \
        "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$digest\"]}" > archive/config.json
    printf '[{"Config":"config.json","RepoTags":["localhost/%s:1"],"Layers":["layer.tar"]}]' "$1" > archive/manifest.json
    tar -C archive -cf "$1.tar" manifest.json config.json layer.tar
    rm -rf archive
}

if [ ! -d bin ]; then
    mkdir -p unfinished
    build_kubernetes
    build_registrar
    mv unfinished bin
    [ ! -d kubernetes ] || rm -rf kubernetes registrar
fi
if [ ! -d root ]; then
    rm -rf root.unfinished
    debootstrap --variant=minbase --include=ca-certificates,e2fsprogs bookworm root.unfinished "$MIRROR"
    mv root.unfinished root
fi
rm -rf small
mkdir small
printf 'int pause(void);\nint main(void) { for (;;) pause(); }\n' | cc -static -O -x c - -o small/pause
image pause small /pause
rm -rf small
mkdir small
cp bin/registrar small/
image registrar small /registrar
for program in larder larderd larder-csi; do
    cp "$PROGRAMS/$program" root/usr/local/bin/
done
image larder-csi root ""
