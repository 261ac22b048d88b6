import{A as e,Ln as t,M as n,Mr as r,Wr as i,X as a,Xn as o,Zn as s,j as c,z as l}from"./start.js";async function u(e){try{await l(p(await r.session(e))),s(i().copied)}catch(e){o(e)}}async function d(e,t){try{let n=await(t===`json`?r.wholeSession(e):r.session(e)),i=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${i}.json`,JSON.stringify(n,null,2),`application/json`):g(`${i}.md`,p(n),`text/markdown`)}catch(e){o(e)}}async function f(e){try{let t=[];for(let n of e)t.push(p(await r.session(n)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){o(e)}}function p(e){return`${[`# ${e.title||i().untitled}`,...e.system?[h(e.system)]:[],...c(e.messages).map(m)].join(`

`)}\n`}function m({message:r,earlier:o}){let s=r.role===`user`?i().you:n([...o,r]).join(`, `)||r.role,c=a(r.outcome,null),l=[...[...o,r].flatMap(({content:e})=>t(e)).map(()=>i().imageAlt),r.edited?i().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${s}`,e([...o,r]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};